"""Event loops and threads that wait for replies, without a broker."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.support.waiting import eventually
from zmqtriton_floor import wire
from zmqtriton_floor.lifeline import Lifeline, pair
from zmqtriton_stub.broker.bls_call import BlsCall
from zmqtriton_stub.watch import Watch

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
    """A watch, whose replies come by a pipe, and for whose lifeline there are rounds."""

    def __init__(self) -> None:
        ours, theirs = pair()
        self.supervisor, self.lifeline = Lifeline(ours), Lifeline(theirs)
        self.replies, self.announce_reply = os.pipe()
        self.rounds: list[int] = []
        self.turns = 0
        #: Those that get the next reply, first to last.
        self.owed: list[BlsCall] = []
        self.watch = Watch(self, self.lifeline)
        self.watch.replies.register(self.replies, select.EPOLLIN)

    def may_poll(self) -> bool:
        return True

    def run_round(self) -> None:
        self.lifeline.receive()
        self.rounds.append(threading.get_ident())

    def turn(self) -> None:
        self.turns += 1
        os.set_blocking(self.replies, False)
        try:
            count = len(os.read(self.replies, 100))
        except BlockingIOError:
            return
        for _ in range(count):
            self.owed.pop(0).answer(*REPLY)

    def announce_round(self) -> None:
        self.supervisor.send(wire.Listen())

    def wait(self, call: BlsCall) -> Any:
        return self.watch.wait(call, self.turn)

    def reply_to(self, *calls: BlsCall) -> None:
        self.owed += calls
        os.write(self.announce_reply, b"x" * len(calls))

    def close(self) -> None:
        os.close(self.replies)
        os.close(self.announce_reply)
        self.watch.close()
        self.lifeline.close()
        self.supervisor.close()


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

    assert REPLY == world.wait(call)
    assert (0, None) == (world.turns, world.watch.of(world.watch.thread))


def test_the_loops_thread_runs_rounds_while_it_waits(world: World) -> None:
    call = _call()
    world.announce_round()
    timer = threading.Timer(0.02, world.reply_to, [call])
    timer.start()

    assert REPLY == world.wait(call)

    assert [threading.get_ident()] == world.rounds
    assert world.watch.of(threading.main_thread().ident) is None
    timer.join()


def test_one_thread_reads_for_all_and_then_another(world: World) -> None:
    calls = [_call() for _ in range(3)]
    answers: list[Any] = []

    def ask(call: BlsCall) -> None:
        answers.append(world.wait(call))

    threads = [threading.Thread(target=ask, args=[call]) for call in calls]
    for thread in threads:
        thread.start()
    eventually(lambda: len(world.watch.threads) == 3, 30)
    idents = [thread.ident for thread in threads]
    assert calls == [world.watch.of(ident) for ident in idents]
    assert world.watch.of(None) is None

    def are_answered(count: int) -> bool:
        waiting = [one for one in map(world.watch.of, idents) if one is not None]
        return (count, 3 - count) == (len(answers), len(waiting))

    for number, call in enumerate(calls, start=1):
        world.reply_to(call)
        eventually(partial(are_answered, number), 30)

    for thread in threads:
        thread.join(30)
    assert [REPLY] * 3 == answers
    assert {} == world.watch.threads
    # the next one may read
    assert not world.watch._reading.locked()


def test_a_loop_reads_as_long_as_something_in_it_waits(world: World) -> None:
    loop = Loop()

    world.watch.add_loop(loop, world.turn)
    world.watch.add_loop(loop, world.turn)
    assert {world.watch.replies.fileno(), world.watch.loop.fileno()} == loop.readers.keys()

    world.watch.remove_loop(loop)
    assert {world.watch.replies.fileno(), world.watch.loop.fileno()} == loop.readers.keys()
    world.watch.remove_loop(loop)
    assert ({}, {}) == (loop.readers, world.watch.loops)
    world.watch.remove_loop(loop)


def test_the_models_event_loop_which_runs_rounds_anyway_reads_replies_as_well(world: World) -> None:
    loop = Loop()
    world.watch.serve(loop, world.run_round)
    assert {world.watch.loop.fileno()} == loop.readers.keys()

    world.watch.add_loop(loop, world.turn)

    assert world.run_round == loop.readers[world.watch.loop.fileno()]
    assert world.turn == loop.readers[world.watch.replies.fileno()]


def test_another_thread_runs_rounds_while_it_waits_if_it_may(world: World) -> None:
    call, answers = _call(), list[Any]()
    thread = threading.Thread(target=lambda: answers.append(world.wait(call)))
    thread.start()
    world.watch.give_back()

    world.announce_round()
    eventually(lambda: world.rounds, 30)
    assert ({thread.ident}, []) == ({*world.rounds}, answers)

    world.reply_to(call)
    thread.join(30)
    assert [REPLY] == answers


def test_a_loop_of_another_thread_looks_at_the_lifeline_and_not_at_batches(world: World) -> None:
    loop = Loop()
    thread = threading.Thread(target=world.watch.add_loop, args=[loop, world.turn])
    thread.start()
    thread.join(30)

    assert world.watch.replies.fileno() in loop.readers
    assert world.watch.loop.fileno() not in loop.readers
    assert 2 == len(loop.readers)


def test_loops_that_are_over_are_forgotten(world: World) -> None:
    over, other = Loop(), Loop()
    world.watch.add_loop(over, world.turn)
    over.is_over = True

    world.watch.add_loop(other, world.turn)

    assert [other] == list(world.watch.loops)
