"""Turns of tasks at the loop of a process: what turns.py is for clients that are read.

A task works until it waits, and the loop then has the next one work that can: with hundreds that
can, each for some milliseconds, everybody else waits for all of them. Here they work for some
milliseconds together; the others wait for the next rounds, between which the loop does everything
else. Those come first for whose clients the least was done lately, and one that has waited longest:
however much the others have done for them, all go on.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

from zmqtriton_frontends.process.turns import ROUND_S

#: How long a turn is where others wait, and at least.
_TURN_S = 0.001
#: Of what was done for a client half counts after this time.
_HALF_S = 5.0
#: No more have their turns in one round.
_MAX_TASKS = 64
#: The part of the last turn in the length that is expected of one.
_WEIGHT = 0.1

T = TypeVar("T")


class Effort:
    """The work that was done for a client lately."""

    __slots__ = ("_at", "_seconds", "address")

    def __init__(self, address: str = "") -> None:
        self.address = address
        self._seconds = self._at = 0.0

    def add(self, begun: float, now: float) -> None:
        self._seconds, self._at = self.seconds(begun) + now - begun, now

    def seconds(self, now: float) -> float:
        return self._seconds * 0.5 ** ((now - self._at) / _HALF_S) if self._seconds else 0.0


class TaskTurns:
    """The turns of all tasks of a process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        #: The next round is due: tasks wait, or this one is over.
        self._is_crowded = False
        #: How long tasks have worked in this round, and when that was.
        self._used_s = self._used_at = 0.0
        self._expected_s = _TURN_S
        #: What tasks wait for, by what was done for their clients; and the same in order.
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._oldest: deque[asyncio.Future[None]] = deque()
        #: How many of each address wait.
        self._of_address: Counter[str] = Counter()
        self._next_number = 0

    def left_s(self) -> float:
        """Return how long a task may work now."""
        return _TURN_S if self._waiting else max(ROUND_S - self._used_s, _TURN_S)

    def place(self, effort: Effort) -> asyncio.Future[None] | None:
        """Return what a task has to wait for; None if it may work now."""
        if not self._is_crowded:
            return None
        address, waiting = effort.address, self._waiting
        rank = effort.seconds(self.clock()) * (self._of_address[address] + 1)
        if self._used_s < ROUND_S and (not waiting or rank < waiting[0][0]):
            return None
        future = asyncio.get_running_loop().create_future()
        self._next_number += 1
        heapq.heappush(waiting, (rank, self._next_number, future))
        self._oldest.append(future)
        self._of_address[address] += 1
        future.add_done_callback(lambda _: self._leave(address))
        return future

    def _leave(self, address: str) -> None:
        self._of_address[address] -= 1
        if not self._of_address[address]:
            del self._of_address[address]

    def spend(self, effort: Effort, begun: float) -> None:
        """Note that a task has worked since then."""
        now = self.clock()
        effort.add(begun, now)
        if not self._is_crowded:
            # what the loop has done between two turns counts as its part of the round
            self._used_s = max(0.0, self._used_s - (begun - self._used_at))
        self._used_s += now - begun
        self._used_at = now
        self._expected_s += _WEIGHT * (now - begun - self._expected_s)
        if self._used_s >= ROUND_S:
            self._crowd()

    def _crowd(self) -> None:
        if not self._is_crowded:
            self._is_crowded = True
            asyncio.get_running_loop().call_soon(self._go_round)

    def _go_round(self) -> None:
        self._used_s = 0.0
        self._is_crowded = False
        waiting, oldest = self._waiting, self._oldest
        for _ in range(max(1, min(_MAX_TASKS, int(ROUND_S / max(self._expected_s, 1e-6))))):
            while waiting and waiting[0][2].done():
                heapq.heappop(waiting)
            if waiting:
                heapq.heappop(waiting)[2].set_result(None)
        while oldest and oldest[0].done():
            oldest.popleft()
        if oldest:
            oldest.popleft().set_result(None)
        if oldest:
            self._crowd()


class WorkTurn:
    """The turns of a client's work that is no task."""

    def __init__(self, turns: TaskTurns, effort: Effort) -> None:
        self._turns = turns
        self._effort = effort

    def take(self, work: Callable[[], None]) -> None:
        """Do the work, after others where there is much to do."""
        place = self._turns.place(self._effort)
        if place is None:
            self._do(work)
        else:
            place.add_done_callback(lambda _: self._do(work))

    def _do(self, work: Callable[[], None]) -> None:
        begun = self._turns.clock()
        try:
            work()
        finally:
            self._turns.spend(self._effort, begun)


class TaskTurn:
    """The turns of the tasks of one request."""

    def __init__(self, turns: TaskTurns, effort: Effort) -> None:
        self._turns = turns
        self._effort = effort
        self._end = 0.0

    @property
    def is_over(self) -> bool:
        """True if a task should let others work, as by asyncio.sleep(0)."""
        return self._turns.clock() >= self._end

    async def take(self, work: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        """Return the result of work that waits for a turn each time that it can go on."""
        # begun here: a task may be cancelled before it begins
        return await self._step(work(*arguments))

    @coroutine
    def _step(self, work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        turns, effort = self._turns, self._effort
        error: BaseException | None = None
        try:
            while True:
                place = turns.place(effort) if error is None else None
                if place is not None:
                    try:
                        yield from place
                    except asyncio.CancelledError as cancelled:
                        error = cancelled
                begun = turns.clock()
                self._end = begun + turns.left_s()
                try:
                    waits_for = work.send(None) if error is None else work.throw(error)
                except StopIteration as done:
                    result: T = done.value
                    return result
                finally:
                    error = None
                    turns.spend(effort, begun)
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
