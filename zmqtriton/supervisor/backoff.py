"""How long to wait before something that has died is started again.

At once the first time, then twice as long each time; deaths of more than a minute ago do not
count.
"""

from __future__ import annotations

from collections import deque

#: More deaths than this within so many seconds are a crash loop.
MAX_DEATHS = 5
WITHIN_S = 60.0
#: What has worked for so long is no part of a crash loop: the count begins anew.
PROVEN_S = 1.0
#: The pause before the second restart, and the longest one.
FIRST_PAUSE_S = 0.2
MAX_PAUSE_S = 30.0


class Backoff:
    def __init__(self) -> None:
        self._deaths: deque[float] = deque()

    def record(self, now_s: float, worked_for_s: float = 0.0) -> None:
        """Something has died, after having worked for so long."""
        if worked_for_s >= PROVEN_S:
            self._deaths.clear()
        self._deaths.append(now_s)
        while self._deaths[0] <= now_s - WITHIN_S:
            self._deaths.popleft()

    @property
    def deaths(self) -> int:
        return len(self._deaths)

    @property
    def is_exhausted(self) -> bool:
        return len(self._deaths) > MAX_DEATHS

    @property
    def pause_s(self) -> float:
        earlier = len(self._deaths) - 1
        return min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (earlier - 1)) if earlier > 0 else 0.0
