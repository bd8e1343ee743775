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

    #: Of everybody: to tell whose each is costs more than all else here, and few are new later.
    #: A number that comes again meanwhile, once in 32,768 processes, is not missed for long: the
    #: session looks at its end, too.
    processes: frozenset[int]
    #: None where tests run beside others: nobody can tell which of them a new name is of
    shared_memory: frozenset[str] | None
    #: what each is open on
    descriptors: Mapping[str, str]


class _Processes:
    """The processes of one moment; what /proc has of each is read when it is asked for."""

    def __init__(self, mark: str) -> None:
        self.pids = frozenset(int(name) for name in os.listdir("/proc") if name.isdigit())
        self._entry = f"{MARK_VARIABLE}={mark}".encode()
        self._stats: dict[int, _Stat | None] = {}

    def stat(self, pid: int) -> _Stat | None:
        """Return None of a process that is gone."""
        if pid not in self._stats:
            self._stats[pid] = None
            with contextlib.suppress(OSError):
                self._stats[pid] = _stat(pid)
        return self._stats[pid]

    def ancestors(self, pid: int) -> Iterator[int]:
        while pid > 1 and (stat := self.stat(pid)):
            pid = stat.parent
            yield pid

    def is_ours(self, pid: int) -> bool:
        """True for a living process that has the mark, or descends from this one."""
        own, stat = os.getpid(), self.stat(pid)
        if pid == own or stat is None or stat.state in "ZX":
            return False
        # A process may overwrite its environment, to change its title for example.
        return own in self.ancestors(pid) or _has_entry(pid, stat.start, self._entry)


def is_alive(pid: int) -> bool:
    """True unless the process has ended, if only to be reaped."""
    try:
        return _stat(pid).state not in "ZX"
    except OSError:
        return False


def mark_session() -> str:
    """Marks all processes that will be started from here on."""
    mark = secrets.token_hex(8)
    os.environ[MARK_VARIABLE] = mark
    return mark


def take_snapshot(mark: str, *, beside_others: bool = False) -> ResourceSnapshot:
    names = None if beside_others else shared_memory()
    return ResourceSnapshot(_Processes(mark).pids, names, _descriptors())


def marked_processes(mark: str) -> set[int]:
    """Every living process that has this mark, or descends from this one."""
    processes = _Processes(mark)
    return set(filter(processes.is_ours, processes.pids))


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
    processes = _Processes(mark)
    return [
        pid
        for pid in sorted(processes.pids - before.processes)
        if processes.is_ours(pid)
        and not any(
            ancestor in before.processes and processes.is_ours(ancestor)
            for ancestor in processes.ancestors(pid)
        )
    ]


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
