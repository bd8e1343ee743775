"""The pause before a dead process is started again.

A process that had worked is started again at once, unless this happens so often that the machine
would only be busy with starts. The pause of a process that dies before it has worked doubles each
time, up to a limit; the process may be given up after several deaths within a minute.
"""

from __future__ import annotations

from collections import deque

WINDOW_S = 60.0
#: Maximum number of deaths in a row, without a working process between; more are a crash loop.
MAX_DEATHS = 5
#: Maximum number of restarts per minute without a pause; they cost less than a tenth of a core.
MAX_QUICK_RESTARTS = 30
#: Minimum number of deaths within a minute that status and log mention.
MANY_DEATHS = 3
#: Seconds of life after which a process counts as working, even without any request.
PROVEN_AFTER_S = 1.0
#: The pause before the second restart, and the longest pause.
FIRST_PAUSE_S = 0.2
MAX_PAUSE_S = 30.0


class Backoff:
    def __init__(self, max_pause_s: float = MAX_PAUSE_S) -> None:
        self._max_pause_s = max_pause_s
        #: The last death of a process that had worked, and the deaths since then of those that had
        #: not.
        self._in_a_row: deque[float] = deque()
        self._all: deque[float] = deque()
        #: Deaths of processes that had not worked, in a row and however long ago: a few pauses are
        #: longer than the window. A process that lives for a whole window ends the row.
        self._fruitless = 0
        #: Time when the next process will have lived for a window; its death ends the row.
        self._proven_s = 0.0

    def record_death(self, now_s: float, *, had_worked: bool = False) -> None:
        """Record the death of a process."""
        if had_worked:
            self._in_a_row.clear()
        if had_worked or now_s >= self._proven_s:
            self._fruitless = 0
        self._fruitless += 1
        for deaths in (self._in_a_row, self._all):
            deaths.append(now_s)
            while deaths[0] <= now_s - WINDOW_S:
                deaths.popleft()
        self._proven_s = now_s + self.pause_s + WINDOW_S

    @property
    def consecutive_deaths(self) -> int:
        """Return the number of deaths without a working process between them."""
        return len(self._in_a_row)

    @property
    def is_exhausted(self) -> bool:
        return len(self._in_a_row) > MAX_DEATHS

    @property
    def pause_s(self) -> float:
        earlier = max(self._fruitless - 1, len(self._all) - MAX_QUICK_RESTARTS)
        # the exponent is bounded: a process may die for months
        factor = 2.0 ** min(earlier - 1, 32)
        return min(self._max_pause_s, FIRST_PAUSE_S * factor) if earlier > 0 else 0.0

    def deaths_of_late(self, now_s: float) -> int:
        """Return the number of deaths if it is worth a report: many lately, or only deaths."""
        recent = sum(death_s > now_s - WINDOW_S for death_s in self._all)
        count = max(self._fruitless if recent else 0, recent)
        return count if count >= MANY_DEATHS else 0
