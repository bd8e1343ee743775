"""The processor time and the memory of processes and of models, from /proc.

Of this server's processes, whoever runs them: the kernel shows these figures of all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
#: The fields of /proc/PID/stat behind the name, which may contain anything.
_UTIME, _STIME, _STARTED, _RESIDENT = 11, 12, 19, 21
#: A model's name and version.
Key = tuple[str, str]


class Usage(NamedTuple):
    """The use of a process. Pages that several processes share count in each."""

    #: Of one core, since the last look; None at the first.
    cpu_percent: float | None
    memory_bytes: int
    #: Since the last look; since its start at the first.
    cpu_s: float = 0.0


class _Reading(NamedTuple):
    started: int
    cpu_s: float
    at_s: float


class Processes:
    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._before: dict[int, _Reading] = {}
        #: By pid, as of the last look.
        self.usage: Mapping[int, Usage] = {}

    def look(self, pids: Iterable[int], now_s: float) -> None:
        """Read the processes; leave out those that have ended."""
        usage: dict[int, Usage] = {}
        readings: dict[int, _Reading] = {}
        for pid in pids:
            fields = self._read(pid)
            if fields is None:
                continue
            cpu_s = (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS_PER_S
            reading = readings[pid] = _Reading(int(fields[_STARTED]), cpu_s, now_s)
            memory_bytes = int(fields[_RESIDENT]) * _PAGE_BYTES
            before = self._before.get(pid)
            if before is not None and before.started != reading.started:
                before = None  # the number has gone to another process
            spent_s = cpu_s - (0.0 if before is None else before.cpu_s)
            usage[pid] = Usage(_percent(before, reading), memory_bytes, max(0.0, spent_s))
        self._before, self.usage = readings, usage

    def _read(self, pid: int) -> list[bytes] | None:
        try:
            with open(self._proc / str(pid) / "stat", "rb", buffering=0) as file:
                return file.read(4096).rpartition(b")")[2].split()
        except OSError:
            return None


def _percent(before: _Reading | None, now: _Reading) -> float | None:
    if before is None or now.at_s <= before.at_s:
        return None
    return 100 * max(0.0, now.cpu_s - before.cpu_s) / (now.at_s - before.at_s)


class Use(NamedTuple):
    #: Since this process looks, processes that have ended included.
    cpu_s: float
    memory_bytes: int


class ModelUse:
    def __init__(self, processes: Processes | None = None) -> None:
        self._processes = Processes() if processes is None else processes
        #: Of processes that have ended, too: a counter must not fall when one is replaced.
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
