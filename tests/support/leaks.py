"""Finds what a test left behind: processes, shared memory, descriptors.

A process is ours if its environment holds this session's mark, so that one whose parents are dead,
or which moved into a session of its own, is found as well. What belongs to a server that was
running before the test and still is may come and go.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import secrets
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import eventually

MARK_VARIABLE = "ZT_TEST_ID"
#: Time for what was told to stop; a process that is being reaped counts until then.
_GRACE_S = 30.0
#: Modules that a test imports for the first time may keep one open.
_DESCRIPTOR_TOLERANCE = 2


@dataclass(frozen=True)
class ResourceSnapshot:
    """The resources of this session at one moment."""

    #: pid → start time, which tells a process from a later one with its number
    processes: dict[int, str]
    #: None where tests run beside others: nobody can tell which of them a new name is of
    shared_memory: frozenset[str] | None
    descriptors: int


def mark_session() -> str:
    """Marks all processes that will be started from here on."""
    mark = secrets.token_hex(8)
    os.environ[MARK_VARIABLE] = mark
    return mark


def take_snapshot(mark: str, *, beside_others: bool = False) -> ResourceSnapshot:
    names = None if beside_others else shared_memory()
    return ResourceSnapshot(marked_processes(mark), names, _descriptors())


def marked_processes(mark: str) -> dict[int, str]:
    """Every living process that has this mark, or descends from this one."""
    entry = f"{MARK_VARIABLE}={mark}".encode()
    found = {}
    for name in os.listdir("/proc"):
        # Whatever cannot be read is gone, or somebody else's.
        with contextlib.suppress(OSError):
            if not name.isdigit() or int(name) == os.getpid():
                continue
            environment = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
            # A process may overwrite its environment, to change its title for example.
            if entry in environment or os.getpid() in _ancestors(int(name)):
                state, _, start = _stat(int(name))
                if state not in "ZX":
                    found[int(name)] = start
    return found


def find_leaks(before: ResourceSnapshot, mark: str, within_s: float = _GRACE_S) -> list[str]:
    """Return what is there now and was not before, a line each; kill processes."""
    return _wait_and_kill(_leaked_resources, before, mark, within_s)


def leaked_processes(before: ResourceSnapshot, mark: str, within_s: float = _GRACE_S) -> list[str]:
    """The same of processes alone."""
    return _wait_and_kill(_processes, before, mark, within_s)


def _wait_and_kill(
    look: Callable[[ResourceSnapshot, str], list[str]],
    before: ResourceSnapshot,
    mark: str,
    within_s: float,
) -> list[str]:
    found: list[str] = []

    def is_clean() -> bool:
        found[:] = look(before, mark)
        return not found

    with contextlib.suppress(AssertionError):
        eventually(is_clean, within_s)
    for pid in _new_processes(before, mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found


def _processes(before: ResourceSnapshot, mark: str) -> list[str]:
    return [f"process {pid}: {_command(pid)}" for pid in _new_processes(before, mark)]


def _leaked_resources(before: ResourceSnapshot, mark: str) -> list[str]:
    found = _processes(before, mark)
    if before.shared_memory is not None:
        found += _new_names(before.shared_memory, mark)
    if _descriptors() > before.descriptors + _DESCRIPTOR_TOLERANCE:
        gc.collect()
        now = _descriptors()
        if now > before.descriptors + _DESCRIPTOR_TOLERANCE:
            found.append(f"{now - before.descriptors} file descriptors of this process")
    return found


def leaked_shared_memory(before: frozenset[str], within_s: float = _GRACE_S) -> list[str]:
    """Shared memory that nobody uses and that was not there before, after time to go."""
    with contextlib.suppress(AssertionError):
        eventually(lambda: not _new_names(before, mark=""), within_s)
    return _new_names(before, mark="")


def _new_names(before: frozenset[str], mark: str) -> list[str]:
    new = shared_memory() - before
    return [f"/dev/shm/{name}" for name in sorted(new - _used_by_others(mark) if new else new)]


def _new_processes(before: ResourceSnapshot, mark: str) -> list[int]:
    now = marked_processes(mark)
    return [
        pid
        for pid in now
        if not any(
            before.processes.get(ancestor) == now.get(ancestor, "gone")
            for ancestor in (pid, *_ancestors(pid))
        )
    ]


def _ancestors(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        while pid > 1:
            pid = _stat(pid)[1]
            yield pid


def _stat(pid: int) -> tuple[str, int, str]:
    """(state, parent, start time); OSError if there is no such process."""
    # The name in parentheses may hold anything: parentheses, spaces, a part of a letter.
    text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    words = text.rpartition(")")[2].split()
    return words[0], int(words[1]), words[19]


def _command(pid: int) -> str:
    try:
        return (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode(errors="replace")
            .strip()
        )
    except OSError:
        return "(gone)"


def shared_memory() -> frozenset[str]:
    return frozenset(os.listdir("/dev/shm"))


def _used_by_others(mark: str) -> frozenset[str]:
    """Return what processes that are not this session's have mapped: theirs to remove."""
    ours = {os.getpid(), *marked_processes(mark)}
    used = set()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in ours:
            with contextlib.suppress(OSError):
                maps = Path(f"/proc/{name}/maps").read_text("utf-8", "replace")
                used.update(re.findall(r" /dev/shm/(\S+)$", maps, re.MULTILINE))
    return frozenset(used)


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
