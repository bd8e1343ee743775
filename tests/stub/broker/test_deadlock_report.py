"""Waits of a model's code that only a reply can end, and those that may end otherwise."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from tests.support.waiting import eventually
from zmqtriton_floor import wire
from zmqtriton_stub.broker.bls_call import BlsCall
from zmqtriton_stub.broker.deadlock_report import DeadlockReport

pytestmark = pytest.mark.slow

MAIN = threading.main_thread().ident


def call(own_id: int, received: int = 0) -> BlsCall:
    call = BlsCall(wire.Request(own_id, 0, "other", -1, 0, 0, 0, 0, 1, 0, 0), b"")
    call.received = received
    return call


def edge(batch: int, own_id: int, received: int = 0) -> wire.WaitEdge:
    return wire.WaitEdge(batch, own_id, received)


class Sender:
    senders = 1


class World:
    """The calls of a model, its batches and its event loop, as the report sees them."""

    def __init__(self) -> None:
        self.by_thread: dict[int | None, BlsCall] = {}
        self.futures: dict[Any, BlsCall] = {}
        #: Those of the tests themselves let no batch go on.
        self.threads: dict[int, BlsCall] = dict.fromkeys(sys._current_frames(), call(99))
        self.loops: dict[Any, Any] = {}
        self.tasks: dict[int, Any] = {}
        self.running = 1
        self.senders: list[Sender] = []
        self.event_loop: Any = None
        self.slots = 1
        #: What lets threads end once the report was made.
        self.releases: list[Callable[[], None]] = []
        self.of = self.by_thread.get
        world: Any = self
        self.report = DeadlockReport(world, world, world)

    def pending(self) -> list[Sender]:
        return self.senders

    def look(self, later: Callable[[], None] = lambda: None) -> list[wire.WaitEdge]:
        return self.report.look(later)

    def call(self, own_id: int) -> Any:
        """A coroutine's future for the reply to a call."""
        future = asyncio.get_running_loop().create_future()
        self.futures[future] = call(own_id)
        return future

    def in_loop(self, execute: Callable[[World], Coroutine[Any, Any, Any]]) -> list[wire.WaitEdge]:
        """Return the report on a coroutine that stands still, which is cancelled afterwards."""
        edges: list[list[wire.WaitEdge]] = []

        async def run() -> None:
            loop = self.event_loop = asyncio.get_running_loop()
            me = asyncio.current_task()
            task = asyncio.ensure_future(execute(self))
            self.tasks[4] = task
            for _ in range(20):
                await asyncio.sleep(0)
            looked = loop.create_future()

            def look() -> None:
                hidden = asyncio.all_tasks

                def all_tasks(loop: Any = None) -> set[Any]:
                    return hidden(loop) - {me}

                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(asyncio, "all_tasks", all_tasks)
                    edges.append(self.look())
                looked.set_result(None)

            loop.call_soon(look)
            await looked
            for one in asyncio.all_tasks() - {me}:
                one.cancel()
            await asyncio.gather(task, return_exceptions=True)

        asyncio.run(run())
        return sorted(edges[0])


@pytest.fixture
def world() -> World:
    return World()


# ------------------------------------------------------------- the main thread


def test_a_call_in_execute_is_what_it_waits_for(world: World) -> None:
    world.by_thread[MAIN] = call(3, received=2)

    assert [edge(0, 3, 2)] == world.look()


def test_code_that_runs_waits_for_nothing(world: World) -> None:
    assert [] == world.look()


# ------------------------------------------------------------------ coroutines


async def _one(world: World) -> None:
    await world.call(3)


async def _gathered(world: World) -> None:
    await asyncio.gather(world.call(3), world.call(5))


async def _waited(world: World) -> None:
    await asyncio.wait({world.call(3), world.call(5)})


async def _within(world: World) -> None:
    async def inner() -> None:
        await _one(world)

    await asyncio.ensure_future(inner())


async def _with_a_timer_that_is_cancelled(world: World) -> None:
    asyncio.get_running_loop().call_later(3600, lambda: None).cancel()
    await world.call(3)


async def _with_the_timer_that_ends_the_loop_itself(world: World) -> None:
    loop = asyncio.get_running_loop()
    loop.call_later(3600, loop.stop)
    await world.call(3)


async def _awaited_twice(world: World) -> None:
    future = world.call(3)
    await asyncio.gather(asyncio.gather(future), future)


@pytest.mark.parametrize(
    ("execute", "ids"),
    [
        (_one, [3]),
        (_gathered, [3, 5]),
        (_waited, [3, 5]),
        (_within, [3]),
        (_awaited_twice, [3]),
        (_with_a_timer_that_is_cancelled, [3]),
        (_with_the_timer_that_ends_the_loop_itself, [3]),
    ],
)
def test_a_coroutine_waits_for_the_calls_that_it_awaits(
    world: World, execute: Any, ids: list[int]
) -> None:
    assert [edge(0, own_id) for own_id in ids] == world.in_loop(execute)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="there are no task groups")
def test_a_task_group_waits_for_its_tasks(world: World) -> None:
    async def execute(world: World) -> None:
        async with asyncio.TaskGroup() as group:  # type: ignore[attr-defined]
            group.create_task(_one(world))

    assert [edge(0, 3)] == world.in_loop(execute)


def test_of_several_batches_each_waits_for_its_own(world: World) -> None:
    world.slots = 2

    assert [edge(4, 3)] == world.in_loop(_one)


async def _with_a_timer(world: World) -> None:
    asyncio.get_running_loop().call_later(3600, lambda: None)
    await world.call(3)


async def _of_something_else(world: World) -> None:
    await asyncio.get_running_loop().create_future()


async def _of_one_of_both(world: World) -> None:
    await asyncio.gather(world.call(3), asyncio.get_running_loop().create_future())


async def _until_a_time(world: World) -> None:
    await asyncio.wait({world.call(3)}, timeout=3600)


async def _of_what_is_answered(world: World) -> None:
    future = world.call(3)
    world.futures[future].is_answered = True
    await future


async def _of_what_has_a_reply(world: World) -> None:
    future = world.call(3)
    world.futures[future].inbox.put(None)
    await future


async def _beside_another(world: World) -> None:
    other = asyncio.ensure_future(_of_something_else(world))
    await world.call(3)
    await other


@pytest.mark.parametrize(
    "execute",
    [
        _with_a_timer,
        _of_something_else,
        _of_one_of_both,
        _until_a_time,
        _of_what_is_answered,
        _of_what_has_a_reply,
        _beside_another,
    ],
)
def test_what_may_go_on_by_itself_is_not_reported(world: World, execute: Any) -> None:
    assert [] == world.in_loop(execute)


def test_a_sender_in_another_thread_may_answer(world: World) -> None:
    world.senders = [Sender()]
    with _Thread() as other:
        # its number may be that of a thread of an earlier test, which has ended since
        world.threads.pop(other.thread.ident or 0, None)
        assert [] == world.in_loop(_one)

    assert [edge(0, 3)] == world.in_loop(_one)


def test_a_coroutine_may_await_a_thread_that_waits_for_a_call(world: World) -> None:
    held = threading.Event()

    async def execute(world: World) -> None:
        def work() -> None:
            world.by_thread[threading.get_ident()] = call(3)
            held.wait(60)

        waiting = asyncio.get_running_loop().run_in_executor(pool, work)
        eventually(lambda: bool(world.by_thread), 30)
        await waiting

    with ThreadPoolExecutor(1) as pool:
        try:
            assert [edge(0, 3)] == world.in_loop(execute)
        finally:
            held.set()


# --------------------------------------------------------------------- threads


class _Thread:
    """A thread of the model's that goes on until the test has seen enough."""

    def __init__(self) -> None:
        self._held = threading.Event()
        self.thread = threading.Thread(target=self._held.wait, args=[60])

    def __enter__(self) -> _Thread:
        self.thread.start()
        return self

    def release(self) -> None:
        self._held.set()

    def __exit__(self, *error: object) -> None:
        self.release()
        self.thread.join()


def while_main(world: World, wait: Callable[[], None], name: str) -> list[wire.WaitEdge]:
    """Return what another thread reports while the main one is in this function."""
    edges: list[wire.WaitEdge] = []

    def look() -> None:
        eventually(lambda: _is_in(name), 30)
        edges.extend(world.look())
        for release in world.releases:
            release()

    looking = threading.Thread(target=look)

    looking.start()
    wait()
    looking.join()
    return edges


def _is_in(name: str) -> bool:
    frame: Any = sys._current_frames()[MAIN or 0]
    while frame is not None:
        if frame.f_code.co_name == name:
            return True
        frame = frame.f_back
    return False


@pytest.fixture
def asking(world: World) -> Iterator[_Thread]:
    """A thread that waits for a call, and ends when the report was made."""
    with _Thread() as asking:
        world.by_thread[asking.thread.ident] = call(3)
        world.releases.append(asking.release)
        yield asking


@pytest.mark.parametrize(("timeout_s", "edges"), [(None, [edge(0, 3)]), (60, [])])
def test_who_joins_a_thread_waits_for_its_call_unless_only_for_some_time(
    world: World, asking: _Thread, timeout_s: float | None, edges: list[wire.WaitEdge]
) -> None:
    assert edges == while_main(world, partial(asking.thread.join, timeout_s), "join")


def test_who_joins_a_thread_that_asks_nobody_is_not_reported(world: World) -> None:
    with _Thread() as other:
        world.releases.append(other.release)

        assert [] == while_main(world, other.thread.join, "join")


def test_without_a_batch_nothing_stands_still(world: World, asking: _Thread) -> None:
    world.running = 0
    assert [] == while_main(world, asking.thread.join, "join")


def test_who_awaits_the_result_of_a_pool_waits_for_its_thread_s_call(world: World) -> None:
    held = threading.Event()

    def work() -> None:
        world.by_thread[threading.get_ident()] = call(3)
        held.wait(60)

    world.releases.append(held.set)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        eventually(lambda: bool(world.by_thread), 30)

        assert [edge(0, 3)] == while_main(world, future.result, "result")


def test_a_thread_with_a_sender_may_let_the_batch_go_on(world: World, asking: _Thread) -> None:
    world.senders = [Sender()]
    world.threads[asking.thread.ident or 0] = call(3)
    with _Thread() as sender:
        world.threads.pop(sender.thread.ident or 0, None)
        assert [] == while_main(world, asking.thread.join, "join")
        assert sender.thread.is_alive()


def test_a_thread_of_a_pool_that_has_nothing_to_do_answers_nobody(
    world: World, asking: _Thread
) -> None:
    world.senders = [Sender()]
    world.threads[asking.thread.ident or 0] = call(3)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: None).result()

        assert [edge(0, 3)] == while_main(world, asking.thread.join, "join")


def test_the_main_thread_s_event_loop_is_asked_to_look_itself(world: World) -> None:
    later: list[str] = []

    async def execute() -> list[wire.WaitEdge]:
        world.event_loop = asyncio.get_running_loop()
        edges = await asyncio.to_thread(world.look, lambda: later.append("later"))
        await asyncio.sleep(0)
        return edges

    assert ([], ["later"]) == (asyncio.run(execute()), later)


def test_a_loop_that_the_model_runs_itself_is_asked_as_well(world: World) -> None:
    later: list[str] = []

    async def execute() -> None:
        world.loops[asyncio.get_running_loop()] = (1, [])
        await asyncio.to_thread(world.look, lambda: later.append("later"))
        await asyncio.sleep(0)

    asyncio.run(execute())

    assert ["later"] == later
