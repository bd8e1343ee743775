"""Turns of tasks on a real loop, whose time passes only where somebody works."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from zmqtriton_frontends.process.turns import ROUND_S, Cost, TaskTurn, Turns, WorkTurn


class World:
    def __init__(self) -> None:
        self.now = 1000.0
        later = asyncio.get_running_loop().call_soon
        self.turns = Turns(later, lambda: self.now, lambda: self.now)
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
            self.now += 0.001
            if left and turn.is_over:
                await asyncio.sleep(0)
        return name

    def begin(
        self, name: str, milliseconds: int, address: str = "a", spent_s: float = 0.002
    ) -> asyncio.Task[str]:
        turn = self.turn(address, spent_s)
        work = turn.take(self.work, name, turn, milliseconds)
        return asyncio.get_running_loop().create_task(work)


def run(test: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def begin() -> None:
        await asyncio.wait_for(test(World()), 20)

    asyncio.run(begin())


def test_all_tasks_of_a_turn_of_the_loop_together_work_for_a_round() -> None:
    async def test(world: World) -> None:
        tasks = [world.begin(str(number), 20) for number in range(50)]
        longest_s = 0.0
        while not all(task.done() for task in tasks):
            begun = world.now
            await asyncio.sleep(0)
            longest_s = max(longest_s, world.now - begun)

        assert 50 * 20 == len(world.worked)
        assert longest_s <= 3 * ROUND_S  # a round, and a turn of each kind
        assert [str(number) for number in range(50)] == [task.result() for task in tasks]

    run(test)


def test_a_task_that_has_cost_little_comes_before_those_that_have_cost_much() -> None:
    async def test(world: World) -> None:
        tasks = [world.begin("much", 50, spent_s=0.05) for _ in range(50)]
        while len(world.worked) < 50 * 10:
            await asyncio.sleep(0)
        before = len(world.worked)

        await world.begin("little", 1, "b")

        assert len(world.worked) - before < 5 * ROUND_S * 1000
        await asyncio.gather(*tasks)

    run(test)


def test_each_address_has_its_turns_however_many_tasks_another_has() -> None:
    async def test(world: World) -> None:
        tasks = [world.begin("many", 50, "a") for _ in range(50)]

        await world.begin("alone", 50, "b")

        assert world.worked.count("many") < 50 * 50 / 2
        await asyncio.gather(*tasks)

    run(test)


def test_results_and_errors_are_those_of_the_work() -> None:
    async def fail() -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_exception, KeyError("key"))
        with suppress(KeyError):
            await future
        raise ValueError("value")

    async def test(world: World) -> None:
        with pytest.raises(ValueError, match="value"):
            await world.turn("a").take(fail)

    run(test)


def test_work_that_is_cancelled_ends_whether_it_has_begun_or_waits() -> None:
    async def wait(ended: list[int], number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    async def test(world: World) -> None:
        ended: list[int] = []
        loop = asyncio.get_running_loop()
        begun = loop.create_task(world.turn("a").take(wait, ended, 1))
        await asyncio.sleep(0)
        others = [world.begin("others", 50) for _ in range(5)]
        await asyncio.sleep(0)
        waiting = loop.create_task(world.turn("a").take(wait, ended, 2))
        await asyncio.sleep(0)
        unborn = loop.create_task(world.turn("a").take(wait, ended, 3))

        for task in (begun, waiting, unborn):
            task.cancel()
        results = await asyncio.gather(begun, waiting, unborn, return_exceptions=True)

        assert [asyncio.CancelledError] * 3 == [type(one) for one in results]
        assert 1 in ended
        assert 3 not in ended
        await asyncio.gather(*others)

    run(test)


def test_work_that_is_no_task_waits_for_its_turn_and_may_fail(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(world: World) -> None:
        tasks = [world.begin("much", 20) for _ in range(5)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert world.turns.is_crowded
        ended = asyncio.Event()

        def fail() -> None:
            raise ValueError("a defect")

        costly = Cost("b", world.now)
        costly.seconds = 0.04
        for work in (fail, ended.set):
            WorkTurn(world.turns, costly).take(work)
        assert not ended.is_set()
        await ended.wait()

        await asyncio.gather(*tasks)
        assert "a defect" in caplog.text

    run(test)
