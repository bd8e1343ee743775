"""How much of what costs only the server a client may do: a number of frames, and some per second.

Used by connection.py. Does no I/O; the clock is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

Clock = Callable[[], float]


class Budget:
    """Holds `most`, and gets `per_second` back."""

    __slots__ = ("_clock", "_left", "_most", "_per_second", "_seen")

    def __init__(self, most: int, per_second: float, clock: Clock) -> None:
        self._clock = clock
        self._most = most
        self._per_second = per_second
        self._left = float(most)
        self._seen = clock()

    def spend(self) -> bool:
        """Whether there was one left."""
        if self._left < 1:
            now = self._clock()
            self._left += (now - self._seen) * self._per_second
            self._left = min(self._left, self._most)
            self._seen = now
            if self._left < 1:
                return False
        self._left -= 1
        return True


class PingRules(NamedTuple):
    """Triton's options for the pings of clients."""

    #: What a client must leave between two that come without data from us; seconds.
    interval_s: float = 300.0
    #: So many that come too soon are forgiven; 0: all.
    strikes: int = 2
    #: Whether they may come like that too while nothing is being asked.
    without_calls: bool = False


#: The interval between pings while nothing is being asked.
_WITHOUT_CALLS_S = 7200.0


class Pings:
    """Counts the pings of one client. gRPC's clients ping when data have come, to measure how much
    may be under way; those are no strikes."""

    __slots__ = ("_clock", "_last", "_rules", "_strikes")

    def __init__(self, rules: PingRules, clock: Clock) -> None:
        self._rules = rules
        self._clock = clock
        self._last: float | None = None
        self._strikes = 0

    def have_sent(self) -> None:
        """The client gets headers or data."""
        self._last = None
        self._strikes = 0

    def is_one_too_many(self, has_calls: bool) -> bool:
        """A ping has come."""
        now, last, rules = self._clock(), self._last, self._rules
        self._last = now
        may_ping = has_calls or rules.without_calls
        if last is None or now - last >= (rules.interval_s if may_ping else _WITHOUT_CALLS_S):
            return False
        self._strikes += 1
        return 0 < rules.strikes < self._strikes
