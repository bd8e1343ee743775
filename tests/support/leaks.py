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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.support.waiting import eventually

MARK_VARIABLE = "ZT_TEST_ID"
#: Time for what was told to stop; a process that is being reaped counts until then.
_GRACE_S = 30.0
#: Modules that a test imports for the first time may keep one open.
_DESCRIPTOR_TOLERANCE = 2


#: Processes of others, by number, start time and mark: what has not descended from this process
#: does not get its mark later, so its environment is read once.
_FOREIGN: set[tuple[int, str, bytes]] = set()


class _Stat(NamedTuple):
    state: str
    parent: int
    #: Tells a process from a later one with its number.
    start: str


@dataclass(frozen=True)
class ResourceSnapshot:
    """The resources of this session at one moment."""

    #: pid → start time, which tells a process from a later one with its number
    processes: dict[int, str]
    #: None where tests run beside others: nobody can tell which of them a new name is of
    shared_memory: frozenset[str] | None
    #: what each is open on
    descriptors: Mapping[str, str]


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
    return _marked(mark, _all_stats())


def _marked(mark: str, stats: Mapping[int, _Stat]) -> dict[int, str]:
    entry, own = f"{MARK_VARIABLE}={mark}".encode(), os.getpid()
    return {
        pid: stat.start
        for pid, stat in stats.items()
        if pid != own
        and stat.state not in "ZX"
        # A process may overwrite its environment, to change its title for example.
        and (own in _ancestors(pid, stats) or _has_entry(pid, stat.start, entry))
    }


def _has_entry(pid: int, start: str, entry: bytes) -> bool:
    if (pid, start, entry) in _FOREIGN:
        return False
    try:
        environment = _read(f"/proc/{pid}/environ")
    except OSError:
        return False  # it is gone, or somebody else's
    has_entry = entry in environment.split(b"\0")
    if environment and not has_entry:
        _FOREIGN.add((pid, start, entry))
    return has_entry


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
    leaks: list[str] = []

    def is_clean() -> bool:
        leaks[:] = look(before, mark)
        return not leaks

    with contextlib.suppress(AssertionError):
        eventually(is_clean, within_s)
    for pid in _new_processes(before, mark) if leaks else ():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return leaks


def _processes(before: ResourceSnapshot, mark: str) -> list[str]:
    return [f"process {pid}: {_command(pid)}" for pid in _new_processes(before, mark)]


def _leaked_resources(before: ResourceSnapshot, mark: str) -> list[str]:
    leaks = _processes(before, mark)
    if before.shared_memory is not None:
        leaks += _new_names(before.shared_memory, mark)
    if len(_descriptors()) > len(before.descriptors) + _DESCRIPTOR_TOLERANCE:
        gc.collect()
        now = _descriptors()
        excess = len(now) - len(before.descriptors)
        if excess > _DESCRIPTOR_TOLERANCE:
            new = sorted(kind for _, kind in now.items() - before.descriptors.items())
            leaks.append(f"{excess} file descriptors of this process: {', '.join(new)}")
    return leaks


def leaked_shared_memory(before: frozenset[str], within_s: float = _GRACE_S) -> list[str]:
    """Shared memory that nobody uses and that was not there before, after time to go."""
    with contextlib.suppress(AssertionError):
        eventually(lambda: not _new_names(before, mark=""), within_s)
    return _new_names(before, mark="")


def _new_names(before: frozenset[str], mark: str) -> list[str]:
    new = shared_memory() - before
    return [f"/dev/shm/{name}" for name in sorted(new - _used_by_others(mark) if new else new)]


def _new_processes(before: ResourceSnapshot, mark: str) -> list[int]:
    stats = _all_stats()
    now = _marked(mark, stats)
    return [
        pid
        for pid in now
        if not any(
            before.processes.get(ancestor) == now.get(ancestor, "gone")
            for ancestor in (pid, *_ancestors(pid, stats))
        )
    ]


def _ancestors(pid: int, stats: Mapping[int, _Stat]) -> Iterator[int]:
    while pid > 1 and pid in stats:
        pid = stats[pid].parent
        yield pid


def _all_stats() -> dict[int, _Stat]:
    by_pid = {}
    for name in os.listdir("/proc"):
        # Whatever cannot be read is gone.
        with contextlib.suppress(OSError):
            if name.isdigit():
                by_pid[int(name)] = _stat(int(name))
    return by_pid


def _stat(pid: int) -> _Stat:
    """OSError if there is no such process."""
    # The name in parentheses may hold anything: parentheses, spaces, a part of a letter.
    words = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split(None, 20)
    return _Stat(words[0].decode(), int(words[1]), words[19].decode())


def _read(path: str) -> bytes:
    """Read a file of /proc, at half the cost of a Path's; there are many, for each test."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        pieces = []
        while piece := os.read(descriptor, 1 << 16):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(descriptor)


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


def _descriptors() -> dict[str, str]:
    opened = {}
    for name in os.listdir("/proc/self/fd"):
        # the listing's own is closed by now
        with contextlib.suppress(OSError):
            opened[name] = os.readlink(f"/proc/self/fd/{name}")
    return opened
