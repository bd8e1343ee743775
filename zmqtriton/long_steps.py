"""Reports how far a step is that may take minutes: an archive, a copy from an object store."""

from __future__ import annotations

import time
from collections.abc import Callable

#: (level letter, text) for the log
LogFunction = Callable[[str, str], None]
_MIB = 1 << 20


class StepProgress:
    """Reports every few seconds, if the step takes that long."""

    INTERVAL_S = 5.0

    def __init__(self, title: str, total_bytes: int, report: LogFunction) -> None:
        self._title = title
        self._total = max(1, total_bytes)
        self._report = report
        self._next_s = time.monotonic() + self.INTERVAL_S

    def update(self, done_bytes: int) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + self.INTERVAL_S
            size = f" of {self._total // _MIB} MiB" if self._total >= _MIB else ""
            self._report("I", f"{self._title}: {100 * done_bytes // self._total} %{size}")
