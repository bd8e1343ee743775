"""Whether the kernel has just killed a process because memory had run out.

A process that it kills dies of SIGKILL like any other, so its counters are read: those of the
control group where there are some, else the machine's. Asked by the service once a second, and by
whoever has found a death. Says nothing of who was killed.
"""

from __future__ import annotations

import re
from pathlib import Path

#: So old a kill is another's.
_RECENT_KILL_S = 3.0
_COUNTER = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


class OomDetector:
    def __init__(
        self, proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup"), now_s: float = 0.0
    ) -> None:
        self._proc = proc
        self._groups = groups
        self._kill_count = self._count()
        self._changed_s = now_s - 2 * _RECENT_KILL_S

    def poll(self, now_s: float) -> None:
        """Call it once a second."""
        killed = self._count()
        if killed != self._kill_count:
            self._kill_count = killed
            self._changed_s = now_s

    def explain_death(self, reason: str, now_s: float) -> str:
        """Of a death, with what it probably was; `reason` where it was something else."""
        if reason != "killed by SIGKILL":
            return reason
        self.poll(now_s)
        if now_s - self._changed_s > _RECENT_KILL_S:
            return reason
        return f"{reason}, by the kernel: out of memory"

    def _count(self) -> int:
        for path in (*self._cgroup_counter_files(), self._proc / "vmstat"):
            try:
                found = _COUNTER.search(path.read_text())
            except OSError:
                continue
            if found:
                return int(found[1])
        return 0

    def _cgroup_counter_files(self) -> list[Path]:
        try:
            lines = (self._proc / "self" / "cgroup").read_text().splitlines()
        except OSError:
            return []
        found = []
        for line in lines:
            _, controllers, path = line.split(":", 2)
            if not controllers:  # version 2
                found.append(self._groups / path.lstrip("/") / "memory.events")
            elif "memory" in controllers.split(","):
                found.append(self._groups / "memory" / path.lstrip("/") / "memory.oom_control")
        return found
