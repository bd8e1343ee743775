from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from tests.support.scenarios import scenario
from zmqtriton_frontends.inference.connected_client import ConnectedClient
from zmqtriton_frontends.process.ledger import Ledger
from zmqtriton_frontends.process.turns import ROUND_S, Cost, GoOn, TaskTurn, Turns


class Loop:
    """A loop whose time passes only where somebody works."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._due: list[Callable[[], None]] = []
        #: The part of it in which the kernel had others work.
        self.stolen_s = 0.0
        self.turns = Turns(self._due.append, lambda: self.now, lambda: self.now - self.stolen_s)
        #: Who was read, in this order.
        self.read: list[str] = []
        self.rounds: list[float] = []

    def work(self, name: str, left: list[float]) -> GoOn:
        """Work of a millisecond after the other, until all is done."""

        def go_on(until: float) -> bool:
            self.read.append(name)
            while left[0] > 0:
                left[0] -= 0.001
                self.now += 0.001
                if self.now >= until:
                    break
            return left[0] > 0

        return go_on

    def come(self, name: str, seconds: float, cost: Cost) -> None:
        """Something comes that takes so long to read."""
        begun, left = self.now, [seconds]
        until = self.turns.end_of_turn(cost, begun)
        go_on = self.work(name, left)
        if until:
            has_more = go_on(until)
            self.turns.spend(cost, begun)
            if not has_more:
                return
        self.turns.wait(cost, go_on)

    def go_round(self, times: int = 1) -> None:
        for _ in range(times):
            due = list(self._due)
            self._due.clear()
            begun = self.now
            for callback in due:
                callback()
            self.rounds.append(self.now - begun)

    def go_to_the_end(self) -> None:
        while self._due:
            self.go_round()


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_what_costs_little_is_read_before_the_rest_of_what_costs_much(loop: Loop) -> None:
    loop.come("much", 0.1, Cost("a"))
    loop.come("little", 0.001, Cost("b"))
    loop.go_to_the_end()

    assert (["much", "little"], {"much"}) == (loop.read[:2], set(loop.read[2:]))
    assert max(loop.rounds) < 2 * ROUND_S


def test_who_is_alone_never_waits() -> None:
    loop, cost = Loop(), Cost("a")

    for _ in range(100):
        loop.come("alone", 0.004, cost)
        loop.now += 0.004  # what the loop does besides

    assert not loop.turns.is_crowded
    assert 100 == len(loop.read)


def test_who_has_been_modest_comes_before_those_of_whom_nothing_is_known(loop: Loop) -> None:
    modest = Cost("b", loop.now - 1.0)
    for number in range(200):
        loop.come(f"new {number}", 0.004, Cost(f"{number}", loop.now))
    loop.come("modest", 0.0004, modest)

    loop.go_round()

    assert "modest" in loop.read
    assert max(loop.rounds) < 2 * ROUND_S
    loop.go_to_the_end()
    # what is left of an address would keep it waiting for ever longer
    assert not loop.turns._of_address


def test_who_waits_where_nobody_else_does_has_a_turn(loop: Loop) -> None:
    loop.turns.wait(Cost("a"), loop.work("alone", [0.001]))

    loop.go_to_the_end()

    assert ["alone"] == loop.read


# ------------------------------------------------------------------- task turns


class World:
    def __init__(self) -> None:
        self.now = 1000.0
        later = asyncio.get_running_loop().call_soon
        #: The part of the time in which the kernel had others work, and what it takes of each step.
        self.stolen_s = self.steals_s = 0.0
        self.turns = Turns(later, lambda: self.now, lambda: self.now - self.stolen_s)
        #: Who has worked, in this order, a millisecond each.
        self.worked: list[str] = []

    def turn(self, address: str, spent_s: float = 0.002) -> TaskTurn:
        """Turns of a client for which so much was done lately."""
        cost = Cost(address, self.now)
        cost.seconds = spent_s
        return TaskTurn(self.turns, cost)

    async def work(self, name: str, turn: TaskTurn, milliseconds: int) -> str:
        for left in reversed(range(milliseconds)):
            self.worked.append(name)
            self.now += 0.001 + self.steals_s
            self.stolen_s += self.steals_s
            if left and turn.is_over:
                await asyncio.sleep(0)
        return name

    async def wait(self, name: str) -> None:
        """Wait until that is cancelled, and work for a millisecond then."""
        try:
            await asyncio.Event().wait()
        finally:
            self.worked.append(name)
            self.now += 0.001

    def begin(
        self,
        name: str,
        milliseconds: int,
        address: str = "a",
        spent_s: float = 0.002,
        *,
        sends_pieces: bool = False,
    ) -> asyncio.Task[str]:
        turn = self.turn(address, spent_s)
        turn.sends_pieces = sends_pieces
        work = turn.take(self.work, name, turn, milliseconds)
        return asyncio.get_running_loop().create_task(work)

    async def longest_turn_s(
        self, tasks: list[asyncio.Task[Any]], before: Callable[[], None] = lambda: None
    ) -> float:
        """Let the loop turn until all is done; return for how long one turn worked."""
        longest_s = 0.0
        while not all(task.done() for task in tasks):
            before()
            begun = self.now
            await asyncio.sleep(0)
            longest_s = max(longest_s, self.now - begun)
        return longest_s


def run(test: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def begin() -> None:
        await test(World())

    asyncio.run(begin())


@scenario(run)
async def test_all_tasks_of_a_turn_of_the_loop_together_work_for_a_round(world: World, /) -> None:
    tasks = [world.begin(str(number), 20) for number in range(50)]

    # a round, and a turn of each kind
    assert await world.longest_turn_s(tasks) <= 3 * ROUND_S
    assert 50 * 20 == len(world.worked)
    assert [str(number) for number in range(50)] == [task.result() for task in tasks]


@scenario(run)
async def test_rounds_let_as_many_tasks_go_on_where_the_kernel_has_others_work(
    world: World, /
) -> None:
    async def turns_of_the_loop() -> int:
        tasks, count = [world.begin(str(number), 4) for number in range(50)], 0
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            count += 1
        return count

    alone = await turns_of_the_loop()
    world.steals_s = 0.05

    # a task also lets others work when its turn is over by the clock: a step each
    assert await turns_of_the_loop() < 2 * alone


@scenario(run)
async def test_a_task_that_has_cost_little_comes_before_those_that_have_cost_much(
    world: World, /
) -> None:
    tasks = [world.begin("much", 50, spent_s=0.05) for _ in range(50)]
    while len(world.worked) < 50 * 10:
        await asyncio.sleep(0)
    before = len(world.worked)

    await world.begin("little", 1, "b")

    assert len(world.worked) - before < 5 * ROUND_S * 1000
    await asyncio.gather(*tasks)


@scenario(run)
async def test_each_address_has_its_turns_however_many_tasks_another_has(world: World, /) -> None:
    tasks = [world.begin("many", 50, "a") for _ in range(50)]

    await world.begin("alone", 50, "b")

    assert world.worked.count("many") < 50 * 50 / 2
    await asyncio.gather(*tasks)


@pytest.mark.parametrize(
    ("are_pieces", "is_piece", "address"),
    [(True, False, "a"), (False, True, "a"), (True, True, "b")],
)
@scenario(run)
async def test_neither_pieces_of_streams_nor_requests_keep_the_others_waiting(
    world: World, /, are_pieces: bool, is_piece: bool, address: str
) -> None:
    tasks = [world.begin("many", 2, sends_pieces=are_pieces) for _ in range(100)]
    await asyncio.sleep(0)

    await world.begin("one", 1, address, sends_pieces=is_piece)

    assert world.worked.count("many") < 10 * ROUND_S * 1000
    await asyncio.gather(*tasks)


@scenario(run)
async def test_results_and_errors_are_those_of_the_work(world: World, /) -> None:
    async def fail() -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_exception, KeyError("key"))
        with suppress(KeyError):
            await future
        raise ValueError("value")

    with pytest.raises(ValueError, match="value"):
        await world.turn("a").take(fail)


@scenario(run)
async def test_tasks_whose_order_matters_begin_at_once_and_wait_then(world: World, /) -> None:
    tasks = [world.begin("much", 50, spent_s=0.05) for _ in range(20)]
    while not world.turns.is_crowded or len(world.worked) < 20:
        await asyncio.sleep(0)
    names = [str(number) for number in range(5)]
    for name in names:
        turn = world.turn("b", spent_s=0.05)
        work = turn.take(world.work, name, turn, 3, begins_at_once=True)
        tasks.append(asyncio.get_running_loop().create_task(work))
    before = len(world.worked)

    await asyncio.sleep(0)
    begun = [name for name in world.worked[before:] if name in names]
    await asyncio.gather(*tasks)

    assert names == begun
    assert {3} == {world.worked.count(name) for name in names}


@scenario(run)
async def test_work_that_is_cancelled_ends_whether_it_has_begun_or_waits(world: World, /) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.create_task(world.turn("a").take(world.wait, "begun"))
    await asyncio.sleep(0)
    others = [world.begin("others", 50) for _ in range(5)]
    await asyncio.sleep(0)
    waiting = loop.create_task(world.turn("a").take(world.wait, "waiting"))
    await asyncio.sleep(0)
    unborn = loop.create_task(world.turn("a").take(world.wait, "unborn"))

    for task in (begun, waiting, unborn):
        task.cancel()
    results = await asyncio.gather(begun, waiting, unborn, return_exceptions=True)

    assert [asyncio.CancelledError] * 3 == [type(one) for one in results]
    assert "begun" in world.worked
    assert "unborn" not in world.worked
    await asyncio.gather(*others)


@pytest.mark.slow
@scenario(run)
async def test_no_more_is_done_in_a_round_where_tasks_work_for_longer_than_expected(
    world: World, /
) -> None:
    tasks = [world.begin(str(number), 4) for number in range(50)]
    short: list[asyncio.Task[str]] = []

    def begin_short() -> None:
        """Have tasks be expected to be short."""
        short.extend(world.begin("short", 0) for _ in range(50))

    assert await world.longest_turn_s(tasks, begin_short) <= 3 * ROUND_S
    assert 50 * 4 == len(world.worked)
    await asyncio.gather(*short)


@scenario(run)
async def test_tasks_that_are_cancelled_at_once_end_in_turns(world: World, /) -> None:
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(world.turn("a").take(world.wait, "ended")) for _ in range(100)]
    await asyncio.sleep(0)

    for task in tasks:
        task.cancel()

    assert await world.longest_turn_s(tasks) <= 3 * ROUND_S
    assert 100 == len(world.worked)


@scenario(run)
async def test_work_that_is_cancelled_twice_ends_at_once(world: World, /) -> None:
    loop = asyncio.get_running_loop()
    ending = loop.create_task(world.turn("a", 0.05).take(world.wait, "ended"))
    await asyncio.sleep(0)
    others = [world.begin("others", 50) for _ in range(20)]
    await asyncio.sleep(0)

    ending.cancel()
    await asyncio.sleep(0)
    assert "ended" not in world.worked
    ending.cancel()
    await asyncio.sleep(0)

    assert "ended" in world.worked
    await asyncio.gather(*others)


@scenario(run)
async def test_work_that_is_no_task_waits_for_its_turn_and_may_fail(
    world: World, /, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = [world.begin("much", 20) for _ in range(5)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert world.turns.is_crowded
    ended = asyncio.Event()

    def fail() -> None:
        raise ValueError("a defect")

    costly = ConnectedClient(Ledger(1000), world.turns, lambda _: ("b",))
    costly.cost.seconds = 0.04
    for work in (fail, ended.set):
        costly.take_turn(work)
    assert not ended.is_set()
    await ended.wait()

    await asyncio.gather(*tasks)
    assert "a defect" in caplog.text
