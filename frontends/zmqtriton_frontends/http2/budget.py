"""Budgets for frames that cost only the server: an amount, and a refill per second.

Does no I/O; the caller gives the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

Clock = Callable[[], float]


class Budget:
    """A budget of at most `most`, which gains `per_second` each second."""

    __slots__ = ("_clock", "_left", "_limit", "_per_second", "_seen")

    def __init__(self, limit: int, per_second: float, clock: Clock) -> None:
        self._clock = clock
        self._limit = limit
        self._per_second = per_second
        self._left = float(limit)
        self._seen = clock()

    def spend(self, amount: int = 1) -> bool:
        """Spend the amount; False if less is left."""
        if self._left < amount:
            now = self._clock()
            self._left += (now - self._seen) * self._per_second
            self._left = min(self._left, self._limit)
            self._seen = now
            if self._left < amount:
                return False
        self._left -= amount
        return True


class PingRules(NamedTuple):
    """Triton's options for the pings of clients."""

    #: Seconds between two pings that come without data from the server.
    interval_s: float = 300.0
    #: Early pings that a client may send before its connection is ended; 0 is no limit.
    strikes: int = 2
    #: Pings may come at this interval even if no call is in progress; otherwise every two hours.
    without_calls: bool = False


#: Seconds between two pings that come without a call.
_WITHOUT_CALLS_S = 7200.0


class Pings:
    """Counts the pings of one client.

    gRPC clients also ping after data have come, to measure the bandwidth; such pings are no
    strikes.
    """

    __slots__ = ("_clock", "_last", "_rules", "_sent_count", "_strikes")

    def __init__(self, rules: PingRules, clock: Clock) -> None:
        self._rules = rules
        self._clock = clock
        self._last: float | None = None
        #: Value of `sent_count` at the last ping: a ping after new headers or data is no strike.
        self._sent_count = 0
        self._strikes = 0

    def is_one_too_many(self, has_calls: bool, sent_count: int) -> bool:
        """Count a ping; True if the client has exceeded the allowed pings.

        `sent_count` is how often the client was sent headers or data.
        """
        if sent_count != self._sent_count:
            self._sent_count, self._last, self._strikes = sent_count, None, 0
        now, last, rules = self._clock(), self._last, self._rules
        self._last = now
        may_ping = has_calls or rules.without_calls
        if last is None or now - last >= (rules.interval_s if may_ping else _WITHOUT_CALLS_S):
            return False
        self._strikes += 1
        return 0 < rules.strikes < self._strikes
