"""The load of the machine, from /proc: its processor and memory, pressure, and neighbours.

Read once in each interval, however often callers ask. The kernel measures the share of time that
some process waits for a processor, for memory or for a disk (PSI); not every kernel does.
Neighbours are all processes except this server's, which all descend from the supervisor.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from zmqtriton_standard.metrics.processes import PROC, ProcessStat, read_stat

#: Places of the fields `idle` and `iowait` (waiting for I/O) in a line of /proc/stat.
_IDLE = (3, 4)
#: A guest's time is included in the others already.
_FIELDS = 8
#: Minimum percentage of the time with waiting processes that is trouble, by resource.
_TROUBLE = {"cpu": 40.0, "memory": 10.0, "io": 40.0}
_WAITING = {"memory": "memory is short", "io": "disks are slow or busy"}
#: Minimum percentage of the machine's processor time that makes other programs the cause.
_LARGE_SHARE = 40.0
#: Minimum percentage of the time with processes waiting for a processor. Above it all processes
#: of the machine are read, to find the use of other programs; not if they are too many.
_SHORT = 25.0
_MAX_PROCESSES = 5000
#: A minute of looks, and how many of them make a judgement.
_LOOKS, _LEAST_LOOKS = 12, 3


class Machine:
    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        #: Busy share of all cores in the last interval, from 0 to 1.
        self.utilization = 0.0
        self.memory_total = 0
        self.memory_used = 0
        self._look_at_memory()
        self._before = self._times()

    async def watch(self, interval_s: float) -> None:
        """Watch until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            self.look()

    def look(self) -> None:
        busy, total = self._times()
        busy_before, total_before = self._before
        if total > total_before:
            self.utilization = max(0.0, (busy - busy_before) / (total - total_before))
        self._before = busy, total
        self._look_at_memory()

    def _look_at_memory(self) -> None:
        rows = (line.split() for line in (self._proc / "meminfo").read_text().splitlines())
        memory = {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if len(row) == 3}
        self.memory_total = memory.get("MemTotal", 0)
        self.memory_used = self.memory_total - memory.get("MemAvailable", 0)

    def _times(self) -> tuple[int, int]:
        """Return the busy and the total ticks since the machine was started."""
        line = (self._proc / "stat").read_text().partition("\n")[0]
        ticks = [int(field) for field in line.split()[1 : 1 + _FIELDS]]
        return sum(ticks) - sum(ticks[i] for i in _IDLE), sum(ticks)


class Look(NamedTuple):
    """Percentages of the time since the look before; None for figures that are not known."""

    cpu_waiting_percent: float | None = None
    memory_waiting_percent: float | None = None
    io_waiting_percent: float | None = None
    #: Use of other programs in percent of all processors; None while processors are not short.
    neighbours_cpu_percent: float | None = None


class MachineLoad:
    def __init__(self, supervisor: int, proc: Path = PROC) -> None:
        self._proc = proc
        self._supervisor = supervisor
        self._machine = Machine(proc)
        self._processes: dict[int, ProcessStat] = {}
        #: Seconds with waiting processes since the machine's start, by resource; empty if the
        #: kernel does not measure them.
        self.waited_s = self._read_waits()
        self._at_s: float | None = None
        self._looks: deque[Look] = deque(maxlen=_LOOKS)

    @property
    def last(self) -> Look:
        return self._looks[-1] if self._looks else Look()

    async def look(self, now_s: float) -> Look:
        """Measure the time since the last look, in a thread: the kernel may take long for it."""
        look = await asyncio.to_thread(self._measure, now_s)
        self._looks.append(look)
        return look

    def _measure(self, now_s: float) -> Look:
        elapsed_s, before_s = now_s - (self._at_s or now_s), self.waited_s
        self._at_s, self.waited_s = now_s, self._read_waits()
        waits = {
            f"{resource}_waiting_percent": min(100.0, 100 * (s - before_s[resource]) / elapsed_s)
            for resource, s in self.waited_s.items()
            if elapsed_s > 0 and resource in before_s
        }
        self._machine.look()
        is_short = waits.get("cpu_waiting_percent", 0.0) >= _SHORT
        neighbours = self._measure_neighbours(elapsed_s) if is_short else None
        if not is_short:
            self._processes.clear()
        return Look(**waits, neighbours_cpu_percent=neighbours)

    def troubles(self) -> list[dict[str, Any]]:
        """Return the resources that were short in the last minute, each with a line for people."""
        return [
            {"resource": resource, "text": text, "waiting_percent": round(waiting, 1)}
            for resource, least in _TROUBLE.items()
            if (waiting := self._mean(f"{resource}_waiting_percent")) >= least
            and (text := self._text(resource, waiting))
        ]

    def _text(self, resource: str, waiting: float) -> str:
        waits = f"for {waiting:.0f} % of the time a process waits for"
        if resource != "cpu":
            return f"{_WAITING[resource]}: {waits} {'it' if resource == 'memory' else 'them'}"
        share = self._mean("neighbours_cpu_percent")
        if share < _LARGE_SHARE:
            return ""  # it is the server itself that is busy
        return f"other programs take {share:.0f} % of the machine's CPU: {waits} it"

    def _mean(self, name: str) -> float:
        figures = [each for look in self._looks if (each := getattr(look, name)) is not None]
        return sum(figures) / len(figures) if len(figures) >= _LEAST_LOOKS else 0.0

    def _read_waits(self) -> dict[str, float]:
        waits: dict[str, float] = {}
        for resource in _TROUBLE:
            with suppress(OSError, ValueError, IndexError):
                line = (self._proc / "pressure" / resource).read_text().splitlines()[0]
                waits[resource] = int(line.rpartition("total=")[2]) / 1e6
        return waits

    def _measure_neighbours(self, elapsed_s: float) -> float | None:
        """Return the share of the machine's processor time that other processes have used."""
        before, self._processes = self._processes, dict(self._read_processes())
        if not before or not self._processes or elapsed_s <= 0:
            return None
        ours_s = sum(
            now.cpu_s - (before[pid].cpu_s if pid in before else 0.0)
            for pid, now in self._processes.items()
            if self._is_ours(pid)
        )
        cores = os.cpu_count() or 1
        return max(0.0, 100 * (self._machine.utilization - ours_s / elapsed_s / cores))

    def _is_ours(self, pid: int) -> bool:
        seen = 0
        while pid in self._processes and pid != self._supervisor and seen < _MAX_PROCESSES:
            pid, seen = self._processes[pid].parent, seen + 1
        return pid == self._supervisor

    def _read_processes(self) -> Iterator[tuple[int, ProcessStat]]:
        """Yield all processes of the machine; nothing if there are too many."""
        names = [name for name in os.listdir(self._proc) if name.isdigit()]
        for name in islice(names, 0 if len(names) > _MAX_PROCESSES else None):
            if stat := read_stat(int(name), self._proc):
                yield int(name), stat
