"""A budget for inflating: a byte that a client sends may become a thousand.

Its first bodies are inflated at once. Who has had more than that waits, connection by connection,
for as long as the budget says, and nobody else does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from weakref import WeakKeyDictionary

#: What a connection may have inflated at once, and each second after that.
MOST_BYTES = 256 << 20
BYTES_PER_S = 64 << 20
#: So little is not counted.
_FREE_BYTES = 1 << 20


class InflatingBudgets:
    """The bytes that each connection has left; below 0 if a body was larger than that."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: What each has left, and when that was so.
        self._left: WeakKeyDictionary[object, tuple[float, float]] = WeakKeyDictionary()

    def spend(self, connection: object, size: int) -> None:
        """Take note that so many bytes were inflated for it."""
        if size > _FREE_BYTES:
            now = self._clock()
            self._left[connection] = (self._now_left(connection, now) - size, now)

    def wait_s(self, connection: object) -> float:
        """Return how long its next body has to wait."""
        return max(0.0, -self._now_left(connection, self._clock()) / BYTES_PER_S)

    async def wait(self, connection: object) -> None:
        if connection in self._left:
            await asyncio.sleep(self.wait_s(connection))

    def _now_left(self, connection: object, now: float) -> float:
        left, since = self._left.get(connection, (float(MOST_BYTES), now))
        return min(MOST_BYTES, left + (now - since) * BYTES_PER_S)


#: Of this process.
budgets = InflatingBudgets()
