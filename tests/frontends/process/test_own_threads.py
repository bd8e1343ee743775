"""Threads for long work: their bound, their names and their ends."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from tests.support.scenarios import scenario
from tests.support.waiting import eventually
from zmqtriton_floor.errors import Unavailable
from zmqtriton_frontends.process import own_threads
from zmqtriton_frontends.process.own_threads import Threads


def named(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


@scenario(asyncio.run)
async def test_a_call_beyond_the_bound_is_refused_also_if_a_client_has_left() -> None:
    threads, begun, go_on = Threads("bounded", 1, waiting=1), threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        go_on.wait()

    held, waiting = threads.run(hold), threads.run(len, "abc")
    begun.wait()

    held.cancel()
    with pytest.raises(Unavailable, match="too many requests wait for 'bounded'"):
        threads.run(len, "abc")

    assert ["bounded"] == [thread.name for thread in named("bounded")]
    go_on.set()
    assert 3 == await waiting
    assert 2 == await threads.run(len, "ab")


@scenario(asyncio.run)
async def test_a_call_whose_client_has_left_while_it_waited_is_not_made() -> None:
    threads, go_on, made = Threads("held", 1, waiting=2), threading.Event(), list[int]()
    held, left = threads.run(go_on.wait), threads.run(made.append, 1)

    left.cancel()
    go_on.set()
    await asyncio.gather(held, threads.run(made.append, 2))

    assert [2] == made


@scenario(asyncio.run)
async def test_threads_raise_the_errors_of_their_work_and_go_on() -> None:
    threads = Threads("failing", 2)

    for _ in range(5):
        with pytest.raises(ValueError, match="invalid literal"):
            await threads.run(int, "x")


def test_threads_end_when_there_is_no_more_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_threads, "_IDLE_S", 0.01)
    threads = Threads("brief", 3)

    async def work() -> None:
        await asyncio.gather(*(threads.run(len, "") for _ in range(3)))

    asyncio.run(work())

    eventually(lambda: not named("brief"), 30, "they have ended")
    asyncio.run(work())


def test_without_threads_work_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def work() -> None:
        await threads.run(len, "")

    threads = Threads("none", 1)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(Unavailable, match="no thread can begin"):
            asyncio.run(work())

    asyncio.run(work())


@pytest.mark.parametrize("for_long", [False, True])
@scenario(asyncio.run)
async def test_garbage_is_not_collected_while_documents_overlap_unless_for_long(
    monkeypatch: pytest.MonkeyPatch, for_long: bool
) -> None:
    monkeypatch.setattr(own_threads, "_UNCOLLECTED_S", -1.0 if for_long else 60.0)
    meet, go_on = threading.Barrier(2), threading.Event()
    large = asyncio.ensure_future(own_threads.aside(1 << 30, lambda: (meet.wait(), go_on.wait())))
    await asyncio.to_thread(meet.wait)

    assert not await own_threads.aside(1, gc.isenabled)
    assert for_long is gc.isenabled()
    go_on.set()
    await large

    assert gc.isenabled()
