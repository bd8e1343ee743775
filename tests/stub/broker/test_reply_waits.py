"""Event loops and threads that wait for replies, without a broker."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.support.waiting import eventually
from zmqtriton_floor import wire
from zmqtriton_stub.broker.bls_call import BlsCall, ReplyWaits

pytestmark = pytest.mark.slow

REPLY = (wire.Reply(1, 0, "", wire.FINAL), b"body")


class Loop:
    """An event loop, as far as replies concern it."""

    def __init__(self) -> None:
        self.readers: dict[int, Callable[[], None]] = {}
        self.is_over = False

    def is_closed(self) -> bool:
        return self.is_over

    def add_reader(self, descriptor: int, look: Callable[[], None]) -> None:
        self.readers[descriptor] = look

    def remove_reader(self, descriptor: int) -> None:
        del self.readers[descriptor]


class World:
    """A descriptor that announces replies, and two that announce duties: one beside the loop."""

    def __init__(self) -> None:
        self.replies, self.announce_reply = os.pipe()
        self.duty, self.announce_duty = os.pipe()
        self.beside, self.announce_beside = os.pipe()
        self.attended: list[Any] = []
        self.turns = 0
        self.done: list[str] = []
        #: Those that get the next reply, first to last.
        self.owed: list[BlsCall] = []
        self.waits = ReplyWaits(
            self.replies,
            self.turn,
            lambda: {self.duty: self.do_duty},
            self.attended.__contains__,
            {self.beside: self.do_beside},
        )

    def turn(self) -> None:
        self.turns += 1
        os.set_blocking(self.replies, False)
        try:
            count = len(os.read(self.replies, 100))
        except BlockingIOError:
            return
        for _ in range(count):
            self.owed.pop(0).answer(*REPLY)

    def do_duty(self) -> None:
        os.read(self.duty, 1)
        self.done.append("duty")

    def do_beside(self) -> None:
        os.read(self.beside, 1)
        self.done.append("beside")

    def reply_to(self, *calls: BlsCall) -> None:
        self.owed += calls
        os.write(self.announce_reply, b"x" * len(calls))

    def close(self) -> None:
        ends = (self.replies, self.announce_reply, self.duty, self.announce_duty)
        for descriptor in (*ends, self.beside, self.announce_beside):
            os.close(descriptor)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def _call() -> BlsCall:
    return BlsCall(wire.Request(1, 1, "", -1, 0, 0, 0, 0, 1, 0, 0), b"")


def test_a_reply_that_is_there_is_not_waited_for(world: World) -> None:
    call = _call()
    call.answer(*REPLY)

    assert REPLY == world.waits.wait(call)
    assert (0, None) == (world.turns, world.waits.main)


def test_the_main_thread_attends_to_its_duties_while_it_waits(world: World) -> None:
    call = _call()
    os.write(world.announce_duty, b"x")
    timer = threading.Timer(0.02, world.reply_to, [call])
    timer.start()

    assert REPLY == world.waits.wait(call)

    assert ["duty"] == world.done
    assert world.waits.of(threading.main_thread().ident) is None
    timer.join()


def test_one_thread_reads_for_all_and_then_another(world: World) -> None:
    calls = [_call() for _ in range(3)]
    answers: list[Any] = []

    def ask(call: BlsCall) -> None:
        answers.append(world.waits.wait(call))

    threads = [threading.Thread(target=ask, args=[call]) for call in calls]
    for thread in threads:
        thread.start()
    eventually(lambda: len(world.waits.threads) == 3, 30)
    idents = [thread.ident for thread in threads]
    assert calls == [world.waits.of(ident) for ident in idents]
    assert world.waits.of(None) is None

    def are_answered(count: int) -> bool:
        waiting = [one for one in map(world.waits.of, idents) if one is not None]
        return (count, 3 - count) == (len(answers), len(waiting))

    for number, call in enumerate(calls, start=1):
        world.reply_to(call)
        eventually(partial(are_answered, number), 30)

    for thread in threads:
        thread.join(30)
    assert [REPLY] * 3 == answers
    assert {} == world.waits.threads
    # the next one may read
    assert not world.waits._reading.locked()


def test_a_loop_reads_as_long_as_something_in_it_waits(world: World) -> None:
    loop = Loop()

    world.waits.watch(loop)
    world.waits.watch(loop)
    assert {world.replies, world.duty} == loop.readers.keys()

    world.waits.unwatch(loop)
    assert {world.replies, world.duty} == loop.readers.keys()
    world.waits.unwatch(loop)
    assert ({}, {}) == (loop.readers, world.waits.loops)
    world.waits.unwatch(loop)


def test_a_loop_of_the_main_thread_that_attends_to_its_duties_anyway_reads_replies_alone(
    world: World,
) -> None:
    loop = Loop()
    world.attended.append(loop)

    world.waits.watch(loop)

    assert {world.replies} == loop.readers.keys()


def test_a_thread_attends_beside_the_main_one_while_it_waits(world: World) -> None:
    call, answers = _call(), list[Any]()
    thread = threading.Thread(target=lambda: answers.append(world.waits.wait(call)))
    thread.start()

    os.write(world.announce_duty, b"x")
    os.write(world.announce_beside, b"x")
    eventually(lambda: world.done, 30)
    assert (["beside"], []) == (world.done, answers)

    world.reply_to(call)
    thread.join(30)
    assert [REPLY] == answers


def test_a_loop_of_another_thread_attends_beside_the_main_one(world: World) -> None:
    loop = Loop()
    thread = threading.Thread(target=world.waits.watch, args=[loop])
    thread.start()
    thread.join(30)

    assert {world.replies, world.beside} == loop.readers.keys()


def test_loops_that_are_over_are_forgotten(world: World) -> None:
    over, other = Loop(), Loop()
    world.waits.watch(over)
    over.is_over = True

    world.waits.watch(other)

    assert [other] == list(world.waits.loops)
