"""Tells whether the kernel has just killed a process because memory had run out.

Such a process dies of SIGKILL like any other, so the kernel's counters are read: those of the
control group if there is one, else the machine's. They do not say who was killed.
"""

from __future__ import annotations

import re
from pathlib import Path

from zmqtriton_floor.reasons import Kind, Reason

#: An older kill belongs to another death.
_RECENT_KILL_S = 3.0
_COUNTER = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


class OomDetector:
    def __init__(
        self,
        proc: Path = Path("/proc"),
        groups: Path = Path("/sys/fs/cgroup"),
        now_s: float = 0.0,
        group: Path | None = None,
    ) -> None:
        """Set up; `group` has all processes of the server, if its own one has not."""
        self._proc = proc
        self._groups = groups
        self._group = group
        self._kill_count = self._count()
        self._changed_s = now_s - 2 * _RECENT_KILL_S

    def poll(self, now_s: float) -> None:
        """Read the counters. To be called once a second."""
        killed = self._count()
        if killed != self._kill_count:
            self._kill_count = killed
            self._changed_s = now_s

    def explain_death(self, reason: Reason, now_s: float) -> Reason:
        """Return the probable reason of a death, or `reason` if it was something else."""
        if reason.values.get("signal") != "SIGKILL":
            return reason
        self.poll(now_s)
        if now_s - self._changed_s > _RECENT_KILL_S:
            return reason
        return Reason.of(Kind.OUT_OF_MEMORY, f"{reason.text}, by the kernel: out of memory")

    def _count(self) -> int:
        for path in (*self._cgroup_counter_files(), self._proc / "vmstat"):
            try:
                match = _COUNTER.search(path.read_text())
            except OSError:
                continue
            if match:
                return int(match[1])
        return 0

    def _cgroup_counter_files(self) -> list[Path]:
        if self._group is not None:
            return [self._group / "memory.events"]
        try:
            lines = (self._proc / "self" / "cgroup").read_text().splitlines()
        except OSError:
            return []
        files = []
        for line in lines:
            _, controllers, path = line.split(":", 2)
            if not controllers:  # version 2
                files.append(self._groups / path.lstrip("/") / "memory.events")
            elif "memory" in controllers.split(","):
                files.append(self._groups / "memory" / path.lstrip("/") / "memory.oom_control")
        return files
