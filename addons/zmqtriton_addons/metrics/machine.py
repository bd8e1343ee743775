"""The use of the machine's processor and memory, for the metrics page, from /proc.

Read once in each interval, however often it is asked.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

_PROC = Path("/proc")
#: Of the fields of a line of /proc/stat: idle, and waiting for I/O.
_IDLE = (3, 4)
#: A guest's time is included in the others already.
_FIELDS = 8


class Machine:
    def __init__(self, proc: Path = _PROC) -> None:
        self._proc = proc
        #: From 0 to 1 over all cores, in the last interval.
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
        memory = self._memory()
        self.memory_total = memory.get("MemTotal", 0)
        self.memory_used = self.memory_total - memory.get("MemAvailable", 0)

    def _times(self) -> tuple[int, int]:
        """Return the busy and the total ticks since the machine was started."""
        line = (self._proc / "stat").read_text().partition("\n")[0]
        ticks = [int(field) for field in line.split()[1 : 1 + _FIELDS]]
        return sum(ticks) - sum(ticks[i] for i in _IDLE), sum(ticks)

    def _memory(self) -> dict[str, int]:
        """Return the memory in bytes."""
        rows = (line.split() for line in (self._proc / "meminfo").read_text().splitlines())
        return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if len(row) == 3}
