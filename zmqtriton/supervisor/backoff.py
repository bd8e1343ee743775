"""How long to wait before something that has died is started again.

What had worked is started again at once, unless that happens so often that starting it is all that
the machine does. What dies before it has done any good waits twice as long each time, and is given
up after some deaths within a minute. Older deaths do not count.
"""

from __future__ import annotations

from collections import deque

WINDOW_S = 60.0
#: More deaths than this without any good in between are a crash loop.
MAX_DEATHS = 5
#: So many restarts of what had worked cost less than a tenth of a core, and are made at once.
MAX_QUICK_RESTARTS = 30
#: Who has been there for so long has worked, even if nobody asked for anything.
PROVEN_AFTER_S = 1.0
#: The pause before the second restart, and the longest one.
FIRST_PAUSE_S = 0.2
MAX_PAUSE_S = 30.0


class Backoff:
    def __init__(self) -> None:
        #: The last one that had worked, and those since then that had not.
        self._in_a_row: deque[float] = deque()
        self._all: deque[float] = deque()

    def record_death(self, now_s: float, *, had_worked: bool = False) -> None:
        """Something has died."""
        if had_worked:
            self._in_a_row.clear()
        for deaths in (self._in_a_row, self._all):
            deaths.append(now_s)
            while deaths[0] <= now_s - WINDOW_S:
                deaths.popleft()

    @property
    def consecutive_deaths(self) -> int:
        """Without any good in between."""
        return len(self._in_a_row)

    @property
    def is_exhausted(self) -> bool:
        return len(self._in_a_row) > MAX_DEATHS

    @property
    def pause_s(self) -> float:
        earlier = max(len(self._in_a_row) - 1, len(self._all) - MAX_QUICK_RESTARTS)
        return min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (earlier - 1)) if earlier > 0 else 0.0
