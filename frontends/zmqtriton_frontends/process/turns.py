"""Turns of clients at the loop of a process: cheap clients come before expensive ones.

The loop works for all clients together for some milliseconds, a round; then it does everything
else, and work that has come in the meantime waits for the next round. A round begins with clients
that have cost little lately, each for a millisecond, and continues with turns of the others, one
address after the other. The cheapest of each kind come first, as if they had come earlier, and an
address with many clients comes after one with few: hundreds of new connections, whose cost is
unknown, come after clients that have been modest. Tasks that send pieces of streams cost little
each, and there may be hundreds: if requests wait, these tasks have half of a round, one address
after the other. A client that is alone never waits: nothing is refused, and no time is left unused.

A turn is for a function that works until a time (`Turns.wait`), work that is done at once
(`ConnectedClient.take_turn`), or a task, which works when the round is over (`TaskTurn`): a round
lets as many tasks continue as are expected to fill one.

Neither clients nor rounds pay for time that the kernel gave to other processes: otherwise modest
clients would seem expensive on a busy machine, and few tasks would have a turn in a round.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from types import coroutine
from typing import Any, TypeVar

from zmqtriton_frontends.process.futures import wake

_log = logging.getLogger(__name__)

#: Seconds of a round, and so of the longest turn.
ROUND_S = 0.005
#: Seconds that a client may cost at once, and the part of each second that it may cost for ever,
#: and still count as one that costs little.
LITTLE_S = 0.005
LITTLE_PART = 0.05
#: Seconds of cost that are held against a client at most: a second later it costs little again.
_MAX_S = 0.05
#: Seconds of a turn: of a client that costs little where others wait, and of those that cost much
#: if the others have used the round up.
_TURN_S = 0.001
#: Seconds that a new client is taken to have cost.
_NEW_S = 0.002
#: Delay of a turn, in seconds, for each second that the client has cost lately; of a client that
#: costs little, times the number of turns that wait for its address.
_EARLIER_S = 50.0
#: Seconds that it can cost to read something, and each byte of it: more is time that went
#: elsewhere.
READ_S, BYTE_S = 0.0005, 8e-6
#: Requests of all clients of a process at which nothing more is read of clients with more than
#: their share: a collection of garbage, during which all wait, visits each request.
MAX_REQUESTS = 2048
#: Weight of a task's last turn in the length that is expected of one.
_WEIGHT = 0.1

T = TypeVar("T")

#: Does what waits, up to this time; returns whether there is more of it, or None.
GoOn = Callable[[float], bool | None]


#: Work that waits: when it is due, as if it had come earlier; its number, the client's cost, and
#: the function that does it.
_Waiting = tuple[float, int, "Cost", GoOn]
#: Heaps of waiting work by address; the address whose turn is next comes first.
_ByAddress = dict[str, list[_Waiting]]


@dataclass(slots=True, eq=False)
class Cost:
    """The recent cost of a client."""

    address: str = ""
    #: Seconds that the client has cost, as of the time `at`.
    at: float = 0.0
    seconds: float = _NEW_S

    def recent_s(self, now: float) -> float:
        return max(0.0, self.seconds - (now - self.at) * LITTLE_PART)


class Turns:
    """The turns of all clients of a process."""

    def __init__(
        self,
        later: Callable[[Callable[[], None]], Any],
        clock: Callable[[], float] = time.monotonic,
        processor_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """Set up; `later` calls something in the next turn of the loop."""
        #: The time, and the seconds that the processor has worked for this thread.
        self.clock, self.processor_s = clock, processor_clock
        self._later = later
        #: Set while clients wait for their turns, or the time of the round is over.
        self.is_crowded = False
        #: Seconds that this round has worked, and the time of the last work.
        self.worked_s = self._worked_at = 0.0
        #: Heaps of those that wait: clients that cost little; by their addresses, the others, and
        #: tasks that send pieces of streams and cost little.
        self._few: list[_Waiting] = []
        self._many: _ByAddress = {}
        self._pieces: _ByAddress = {}
        #: Number of entries in `_few` by address.
        self._of_address: Counter[str] = Counter()
        self._next_number = 0
        #: The time that a task is expected to work, that of all that this round lets go on, and the
        #: time that tasks have worked since.
        self._expected_s = _TURN_S
        self._due_s = self.tasks_s = 0.0

    def end_of_turn(self, cost: Cost, now: float) -> float:
        """Return the end of the turn that a client may have now; 0 if it has to wait() first."""
        left = ROUND_S - self.worked_s
        if self.is_crowded and (left <= 0 or cost.recent_s(now) > LITTLE_S):
            return 0.0
        return now + (_TURN_S if self.is_crowded else ROUND_S)

    def spend(self, cost: Cost, begun: float, limit_s: float = math.inf) -> None:
        """Charge a client for work since `begun`; the limit is the most that it can cost."""
        now = self.clock()
        took = now - begun
        before = cost.seconds - (begun - cost.at) * LITTLE_PART
        cost.seconds = min(max(0.0, before) + (took if took < limit_s else limit_s), _MAX_S)
        cost.at = now
        if not self.is_crowded:
            # what the loop has done between two turns counts as its part of the round
            self.worked_s = max(0.0, self.worked_s - (begun - self._worked_at))
        self.worked_s += took
        self._worked_at = now
        if self.worked_s > ROUND_S:
            self._crowd()

    def spend_task(self, cost: Cost, begun: float, took: float) -> None:
        """Charge a client for a task since `begun`; it `took` so many seconds of the processor."""
        self.spend(cost, begun, took)
        self.tasks_s += took
        self._expected_s += _WEIGHT * (took - self._expected_s)

    def wait(self, cost: Cost, go_on: GoOn, *, is_piece: bool = False) -> None:
        """Call `go_on` when it is this client's turn, and again while it has more work."""
        now = self.clock()
        address, recent_s = cost.address, cost.recent_s(now)
        self._next_number += 1
        later_s = recent_s * _EARLIER_S
        if recent_s > LITTLE_S:
            heap = self._many.setdefault(address, [])
        elif is_piece:
            heap = self._pieces.setdefault(address, [])
        else:
            self._of_address[address] += 1
            heap, later_s = self._few, later_s * self._of_address[address]
        heapq.heappush(heap, (now + later_s, self._next_number, cost, go_on))
        self._crowd()

    def turn_of_task(self, cost: Cost, *, is_piece: bool = False) -> asyncio.Future[None]:
        """Return a future that is done when it is the turn of a client's task to continue."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def go_on(_until: float) -> None:
            if not turn.done():
                turn.set_result(None)
                self._due_s += self._expected_s

        self.wait(cost, go_on, is_piece=is_piece)
        return turn

    def _crowd(self) -> None:
        if not self.is_crowded:
            self.is_crowded = True
            self._later(self._go_round)

    def _go_round(self) -> None:
        self.worked_s = self._due_s = self.tasks_s = 0.0
        begun = self.processor_s()
        # pieces of streams have half of a round: neither they nor requests can use it up
        self._go_on_few(begun, ROUND_S / 2 if self._pieces else ROUND_S)
        self._go_on_by_address(self._pieces, begun)
        self._go_on_few(begun, ROUND_S)
        self._go_on_by_address(self._many, begun)
        self.is_crowded = False
        if self._few or self._pieces or self._many or self.worked_s > ROUND_S:
            self._crowd()

    def _go_on_few(self, begun: float, within_s: float) -> None:
        while self._few and self.processor_s() - begun + self._due_s < within_s:
            *_, cost, go_on = heapq.heappop(self._few)
            self._of_address[cost.address] -= 1
            if not self._of_address[cost.address]:
                del self._of_address[cost.address]
            self._take(cost, go_on, _TURN_S)

    def _go_on_by_address(self, heaps: _ByAddress, begun: float) -> None:
        """Give addresses their turns one after the other; the first one always gets its turn."""
        is_first = True
        while heaps and (is_first or self.processor_s() - begun + self._due_s < ROUND_S):
            is_first = False
            address = next(iter(heaps))
            waiting = heaps.pop(address)
            *_, cost, go_on = heapq.heappop(waiting)
            if waiting:
                heaps[address] = waiting  # behind all other addresses
            self._take(cost, go_on, max(begun + ROUND_S - self.processor_s(), _TURN_S))

    def _take(self, cost: Cost, go_on: GoOn, within_s: float) -> None:
        begun, worked = self.clock(), self.processor_s()
        try:
            has_more = go_on(begun + within_s)
        except Exception:  # noqa: BLE001 - an edge: a defect ends one client's work, not all turns
            _log.exception("a client's work has failed")
            has_more = False
        self.spend(cost, begun, self.processor_s() - worked)
        if has_more:
            self.wait(cost, go_on)


class TaskTurn:
    """The turns of the tasks of one request."""

    def __init__(self, turns: Turns, cost: Cost) -> None:
        self._turns = turns
        self._cost = cost
        self._end = 0.0
        #: The tasks send pieces of a stream that has begun.
        self.sends_pieces = False

    @property
    def is_over(self) -> bool:
        """True if a task should let others work, as by asyncio.sleep(0)."""
        return self._turns.clock() >= self._end

    async def take(
        self,
        work: Callable[..., Coroutine[Any, Any, T]],
        *arguments: Any,
        begins_at_once: bool = False,
    ) -> T:
        """Return the result of work that waits for a turn before each step.

        It waits before its first step as well, unless the order of tasks matters there.
        """
        # begun here: a task may be cancelled before it begins
        return await self._step(work(*arguments), begins_at_once)

    @coroutine
    def _step(self, work: Coroutine[Any, Any, T], is_due: bool) -> Generator[Any, Any, T]:
        turns, cost = self._turns, self._cost
        error: BaseException | None = None
        try:
            while True:
                may_wait = turns.is_crowded and not is_due
                while may_wait:
                    try:
                        yield from turns.turn_of_task(cost, is_piece=self.sends_pieces)
                        # the tasks of this round have worked for longer than one
                        may_wait = turns.tasks_s >= ROUND_S
                    except asyncio.CancelledError as cancelled:
                        # many clients may leave at once; a second cancellation is not delayed
                        error, may_wait = cancelled, error is None
                begun, worked = turns.clock(), turns.processor_s()
                left_s = 0.0 if turns.is_crowded else ROUND_S - turns.worked_s
                self._end = begun + max(left_s, _TURN_S)
                try:
                    waits_for = work.send(None) if error is None else work.throw(error)
                except StopIteration as done:
                    result: T = done.value
                    return result
                finally:
                    error, is_due = None, False
                    turns.spend_task(cost, begun, turns.processor_s() - worked)
                try:
                    yield waits_for
                except GeneratorExit:
                    raise
                except BaseException as raised:  # noqa: BLE001 - it is the work's, whatever it is
                    error = raised
                finally:
                    del waits_for
        finally:
            work.close()


@dataclass(eq=False)
class RequestShares:
    """The requests in progress on streams of all clients of a process, and each client's share."""

    requests: int = 0
    #: The number of clients with requests.
    clients: int = 0
    #: Done when clients with more than their share may have more again.
    waiting: set[asyncio.Future[None]] = field(default_factory=set)

    def is_full(self, own: int) -> bool:
        """Return whether a client with this number of requests has to wait."""
        return self.requests >= MAX_REQUESTS <= own * self.clients

    async def wait(self, room: asyncio.Future[None]) -> None:
        """Wait for room; the client also gets room when a request of its own ends."""
        self.waiting.add(room)
        try:
            await room
        finally:
            self.waiting.discard(room)

    def begin(self, *, is_first: bool) -> None:
        """Count a request; `is_first` if its client has no other one."""
        self.requests += 1
        self.clients += is_first

    def end(self, count: int = 1, *, was_last: bool) -> None:
        self.requests -= count
        self.clients -= was_last
        if self.requests < MAX_REQUESTS:
            for room in self.waiting:
                wake(room)
