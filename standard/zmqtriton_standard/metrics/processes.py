"""The processor time and the memory of processes and of models, from /proc.

It reads the processes of this server, also those of other users: the kernel shows these figures
to all users.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PROC = Path("/proc")
#: Places in /proc/PID/stat, counted from the end of the name, which may contain anything: the
#: parent, processor time of the process and of the kernel for it, its start, its pages.
_FIELDS = (1, 11, 12, 19, 21)
#: A model's name and version.
Key = tuple[str, str]


class ProcessStat(NamedTuple):
    """The kernel's figures of a process; memory shared by several processes counts in each."""

    parent: int
    #: Processor time since its start.
    cpu_s: float
    #: When it was started, in ticks since the machine's start.
    started: int
    memory_bytes: int


def read_stat(pid: int, proc: Path = PROC) -> ProcessStat | None:
    """Read the figures of a process; None if it has ended."""
    try:
        with open(proc / str(pid) / "stat", "rb", buffering=0) as file:
            fields = file.read(4096).rpartition(b")")[2].split()
        parent, utime, stime, started, pages = (int(fields[place]) for place in _FIELDS)
    except (OSError, IndexError):
        return None
    return ProcessStat(parent, (utime + stime) / _TICKS_PER_S, started, pages * _PAGE_BYTES)


class Usage(NamedTuple):
    """The use of resources by a process; memory shared by several processes counts in each."""

    #: Processor time since the last look in percent of one core; None at the first look.
    cpu_percent: float | None
    memory_bytes: int
    #: Processor time in seconds since the last look; at the first look since the process's start.
    cpu_s: float = 0.0


class Processes:
    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._before: dict[int, ProcessStat] = {}
        self._looked_s = 0.0
        #: Use of each process at the last look, by pid.
        self.usage: Mapping[int, Usage] = {}

    def look(self, pids: Iterable[int], now_s: float) -> None:
        """Read the processes; leave out those that have ended."""
        stats = {pid: stat for pid in pids if (stat := read_stat(pid, self._proc))}
        elapsed_s, self._looked_s = now_s - self._looked_s, now_s
        usage: dict[int, Usage] = {}
        for pid, now in stats.items():
            before = self._before.get(pid)
            if before is not None and before.started != now.started:
                before = None  # the number has gone to another process
            spent_s = max(0.0, now.cpu_s - (0.0 if before is None else before.cpu_s))
            percent = 100 * spent_s / elapsed_s if before and elapsed_s > 0 else None
            usage[pid] = Usage(percent, now.memory_bytes, spent_s)
        self._before, self.usage = stats, usage


class Use(NamedTuple):
    #: Processor seconds since the first look, those of processes that have ended included.
    cpu_s: float
    memory_bytes: int


class ModelUse:
    def __init__(self, processes: Processes | None = None) -> None:
        self._processes = Processes() if processes is None else processes
        #: Processor seconds by model version. Those of ended processes are included, because a
        #: counter must not fall when a process is replaced.
        self._cpu_s: dict[Key, float] = {}

    def look(self, rows: Iterable[Mapping[str, Any]]) -> dict[Key, Use]:
        """Return the use by model and version; the rows are the processes of the status."""
        stubs = [row for row in rows if row["role"] == "stub" and row["pid"]]
        # several may be threads of one process
        keys = {row["pid"]: (row["model"], str(row["version"])) for row in stubs}
        self._processes.look(keys, time.monotonic())
        memory: dict[Key, int] = {}
        for pid, key in keys.items():
            usage = self._processes.usage.get(pid)
            if usage is not None:
                memory[key] = memory.get(key, 0) + usage.memory_bytes
                self._cpu_s[key] = self._cpu_s.get(key, 0.0) + usage.cpu_s
        self._cpu_s = {key: self._cpu_s[key] for key in memory}
        return {key: Use(self._cpu_s[key], bytes_) for key, bytes_ in memory.items()}
