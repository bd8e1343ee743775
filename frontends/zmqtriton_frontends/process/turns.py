"""Turns of clients at the loop of a process: cheap clients are read before dear ones.

The loop reads from all clients together for some milliseconds; then it does everything else, and
what has come meanwhile waits for the next round. A round begins with those that have cost little
lately, each for a millisecond, and has one turn for the others, of one address after the other. The
cheapest of each kind come first, as if they had come earlier: hundreds of new connections, of which
nothing is known, are behind those that have been modest. One that is alone is never kept waiting:
nothing is refused, and no time is left unused.

A client does not pay for the time in which the kernel let others have the core: on a busy machine
the modest would soon seem to cost much.

Does no I/O.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable
from typing import Any

#: A round, and so the longest turn.
ROUND_S = 0.005
#: What a client may cost at once, and what part of each second for ever, and still count as one
#: that costs little.
LITTLE_S = 0.005
LITTLE_PART = 0.05
#: More is not held against a client: a second later it costs little again.
_MAX_S = 0.05
#: The turn of one that costs little where others wait, and of those that cost much if the others
#: have used the round up.
_TURN_S = 0.001
#: What a new client seems to have cost.
_NEW_S = 0.002
#: So much earlier is the turn of one that has cost a second less.
_EARLIER_S = 50.0
#: What it can cost to read something, and each byte of it: more is time that went elsewhere.
READ_S, BYTE_S = 0.0005, 8e-6

#: Does what waits, up to this time; returns whether there is more of it.
GoOn = Callable[[float], bool]


#: When it is due, as if it had come earlier; its number, the client's cost, and what waits.
_Waiting = tuple[float, int, "Cost", GoOn]


class Cost:
    """The recent cost of a client."""

    __slots__ = ("address", "at", "seconds")

    def __init__(self, address: str = "", now: float = 0.0) -> None:
        self.address = address
        #: So much, at that time.
        self.seconds, self.at = _NEW_S, now

    def recent_s(self, now: float) -> float:
        return max(0.0, self.seconds - (now - self.at) * LITTLE_PART)


class Turns:
    def __init__(
        self,
        later: Callable[[Callable[[], None]], Any],
        clock: Callable[[], float] = time.monotonic,
        processor_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """Set up; `later` calls something in the next turn of the loop."""
        self.clock = clock
        self._processor_clock = processor_clock
        self._later = later
        #: Somebody waits, or the round is over.
        self.is_crowded = False
        #: How long this round has read, and when that was.
        self._read_s = self._read_at = 0.0
        #: Heaps of those that wait: clients that cost little, and the others by their addresses.
        self._few: list[_Waiting] = []
        self._many: dict[str, list[_Waiting]] = {}
        self._next_number = 0

    def end_of_turn(self, cost: Cost, now: float) -> float:
        """Return until when a client may be read now; 0 if it has to wait()."""
        left = ROUND_S - self._read_s
        if self.is_crowded and (left <= 0 or cost.recent_s(now) > LITTLE_S):
            return 0.0
        return now + (_TURN_S if self.is_crowded else ROUND_S)

    def spend(self, cost: Cost, begun: float, limit_s: float = math.inf) -> None:
        """Note that something was done for a client since then; the limit is what it can cost."""
        now = self.clock()
        took = now - begun
        before = cost.seconds - (begun - cost.at) * LITTLE_PART
        cost.seconds = min(max(0.0, before) + (took if took < limit_s else limit_s), _MAX_S)
        cost.at = now
        if not self.is_crowded:
            # what the loop has done between two turns counts as its part of the round
            self._read_s = max(0.0, self._read_s - (begun - self._read_at))
        self._read_s += took
        self._read_at = now
        if self._read_s > ROUND_S:
            self._crowd()

    def wait(self, cost: Cost, go_on: GoOn) -> None:
        """Have something done when it is this client's turn, and again while there is more."""
        now = self.clock()
        recent_s = cost.recent_s(now)
        self._next_number += 1
        waiting = (now + recent_s * _EARLIER_S, self._next_number, cost, go_on)
        is_little = recent_s <= LITTLE_S
        heapq.heappush(self._few if is_little else self._many.setdefault(cost.address, []), waiting)
        self._crowd()

    def _crowd(self) -> None:
        if not self.is_crowded:
            self.is_crowded = True
            self._later(self._go_round)

    def _go_round(self) -> None:
        self._read_s = 0.0
        begun = self.clock()
        while self._few and (now := self.clock()) - begun < ROUND_S:
            *_, cost, go_on = heapq.heappop(self._few)
            self._take(cost, go_on, now + _TURN_S)
        if self._many:
            address = next(iter(self._many))
            waiting = self._many.pop(address)
            *_, cost, go_on = heapq.heappop(waiting)
            if waiting:
                self._many[address] = waiting  # behind all other addresses
            self._take(cost, go_on, max(begun + ROUND_S, self.clock() + _TURN_S))
        self.is_crowded = False
        if self._few or self._many or self._read_s > ROUND_S:
            self._crowd()

    def _take(self, cost: Cost, go_on: GoOn, end: float) -> None:
        begun, worked = self.clock(), self._processor_clock()
        has_more = go_on(end)
        self.spend(cost, begun, self._processor_clock() - worked)
        if has_more:
            self.wait(cost, go_on)
