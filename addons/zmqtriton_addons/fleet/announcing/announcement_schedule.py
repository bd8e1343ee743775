"""When a place is told: at once if there is news, again after a failure, and now and then anyhow.

Only the newest state is worth telling, so nothing is queued. Does no I/O and knows no clock.
"""

from __future__ import annotations

import math

#: The pause after a failure: the first one, and the longest.
FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 15.0
#: The least time between two announcements; what changes meanwhile is told in one.
APART_S = 0.1


class AnnouncementSchedule:
    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._has_news = False
        #: Nothing is told before.
        self._earliest_s = 0.0
        #: Never, before there was something to tell.
        self._told_s = math.inf
        self._pause_s = 0.0

    @property
    def is_failing(self) -> bool:
        return self._pause_s > 0

    def has_changed(self) -> None:
        """Take note that there is something new to tell."""
        self._has_news = True

    def due_s(self) -> float:
        """Return when to tell next."""
        return self._earliest_s if self._has_news else self._told_s + self._interval_s

    def begin(self) -> None:
        """Take note that the present state is being announced; later changes are news."""
        self._has_news = False

    def succeeded(self, now_s: float) -> None:
        self._pause_s = 0.0
        self._told_s, self._earliest_s = now_s, now_s + APART_S

    def failed(self, now_s: float, chance: float) -> None:
        """Wait before the next attempt; `chance`, from 0 to 1, keeps many servers apart."""
        self._has_news = True
        self._pause_s = min(MAX_PAUSE_S, max(FIRST_PAUSE_S, self._pause_s * 2))
        self._earliest_s = now_s + self._pause_s * (0.5 + chance / 2)
