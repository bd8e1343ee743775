"""The stub's connection to the broker, with the test in the place of the broker and of the loop."""

from __future__ import annotations

import itertools
import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.stub.fakes import LOAD, body
from tests.stub.supervisor import FakeSupervisor
from tests.support.routers import FakeRouter
from tests.support.waiting import eventually
from zmqtriton_floor import endpoints, wire
from zmqtriton_floor.metrics import COUNTER
from zmqtriton_stub.api import pb_utils
from zmqtriton_stub.broker import unconfirmed_answers
from zmqtriton_stub.broker.connection import BrokerConnection
from zmqtriton_stub.broker.line import BrokerLine, PlayedDealer
from zmqtriton_stub.execution.responses import OpenRequest, state_lock
from zmqtriton_stub.execution.streams import OpenStream, Publisher
from zmqtriton_stub.instance import StubInstance
from zmqtriton_stub.watch import Watch

pytestmark = pytest.mark.slow

TOKEN = b"0123456789abcdef"
A = 3


class States:
    """The implicit states of sequences, as far as the connection knows them."""

    def __init__(self) -> None:
        self.ended: list[Any] = []

    def end(self, correlation: Any) -> None:
        self.ended.append(correlation)

    def clear(self) -> None:
        self.ended.append("all")


class World:
    """One connection, and the brokers that it has had."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.instance = StubInstance(LOAD, lambda message: None)
        self.watch = Watch()
        self.make_link()
        self.router: Any = None
        self.identity = b""
        self._epoch = 0
        self._syncs = 100

    def make_link(self, publisher: Publisher | None = None) -> None:
        line = BrokerLine(self.watch.loop)
        self.link = BrokerConnection(
            self.instance, line, self.watch, pending=self.instance.pending, publisher=publisher
        )

    def looks_at(self, descriptor: int) -> bool:
        """Return whether the loop waits on this descriptor."""
        try:
            self.watch.loop.modify(descriptor, select.EPOLLIN)
        except FileNotFoundError:
            return False
        return True

    def address(self) -> str:
        return f"ipc://{self.directory}/broker-{self._epoch}"

    def listen(self) -> None:
        self.close_broker()
        self._epoch += 1
        self.router = FakeRouter(self.address())

    def connect(self) -> wire.Hello:
        """To the next broker, which hears the hello."""
        self.listen()
        self.link.connect(self.address(), wire.Hello(7, TOKEN, self._epoch))
        hello: wire.Hello = self.receive(wire.Hello)
        self.hello_bodies = self.bodies
        self.held_blocks = self.receive(wire.HeldBlocks).blocks
        return hello

    def welcome(self) -> None:
        self.send(wire.Welcome(self._epoch))
        assert self._epoch == self.link.epoch

    def receive(self, kind: type[Any]) -> Any:
        """Return the next message of this kind."""
        while True:
            assert self.router.poll(10_000), f"no {kind.__name__} was sent"
            self.identity, header, *self.bodies = self.router.receive()
            message = wire.decode(header)
            if type(message) is kind:
                return message

    def send(self, message: Any, *bodies: bytes) -> None:
        """To the stub, which takes it."""
        self.say_raw(wire.encode(message), *bodies)

    def say_raw(self, *frames: bytes) -> None:
        self._syncs += 1
        self.router.send([self.identity, *frames])
        self.router.send([self.identity, wire.encode(wire.Sync(self._syncs))])
        self.turn_until(lambda: self.router.poll(0))
        assert wire.Synced(self._syncs) == self.receive(wire.Synced)

    def turn_until(self, condition: Callable[[], bool]) -> None:
        def turn() -> bool:
            self.link.turn()
            return condition()

        eventually(turn, 30)

    def execute(self, *works: wire.BatchedRequest) -> None:
        self.send(wire.Execute(list(works)), *[wire.encode_body(body())] * len(works))

    def close_broker(self) -> None:
        if self.router is not None:
            self.router.close()

    def close(self) -> None:
        self.link.close()
        self.close_broker()


def work(own_id: int, batch: int = 1, flags: int = 0, correlation: int = 0) -> wire.BatchedRequest:
    return wire.BatchedRequest(batch, A, own_id, flags, correlation, 0, 0)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)

    yield world

    world.close()


@pytest.fixture
def connected(world: World) -> World:
    world.connect()
    world.welcome()
    return world


# ---------------------------------------------------------------- introduction


def test_the_hello_comes_first_and_what_is_held_follows(world: World) -> None:
    world.instance.measures.add_family("f", "", COUNTER)

    hello = world.connect()

    assert (7, TOKEN, 1) == hello[:3]
    assert ([], []) == (hello.received, world.held_blocks)
    assert '[["family", 1, "f", "", 0]]' == world.receive(wire.Call).arguments
    assert world.looks_at(world.link.descriptor)
    assert -1 == world.link.epoch
    world.welcome()


class Asker:
    """The calls of a model, with one reply that a thread is about to open."""

    BLOCK = wire.Block(5, 1, 1)

    def __init__(self, supervisor: FakeSupervisor) -> None:
        self._lock = supervisor.memory.mappings.lock
        self.can_be_opened: list[bool] = []

    def open_blocks(self) -> list[wire.Block]:
        return []

    def unopened_blocks(self) -> list[wire.Block]:
        with ThreadPoolExecutor(1) as thread:
            self.can_be_opened.append(thread.submit(self._lock.acquire, False).result(30))
        return [self.BLOCK]


def test_no_reply_is_opened_while_leases_are_reported(world: World) -> None:
    """Else it would be reported twice, or not at all."""
    supervisor = FakeSupervisor()
    asker: Any = Asker(supervisor)
    world.instance.memory, world.instance.asker = supervisor.memory, asker

    world.connect()
    supervisor.close()

    assert ([Asker.BLOCK], [False]) == (world.held_blocks, asker.can_be_opened)


def test_where_nobody_listens_it_is_to_be_tried_again(world: World) -> None:
    world.link.connect(world.address(), wire.Hello(7, TOKEN, 0))

    due_s = world.link.reconnect_at_s
    assert due_s is not None
    assert 0 < due_s - time.monotonic() <= 0.1
    assert -1 == world.link.descriptor
    world.connect()
    assert world.link.reconnect_at_s is None


def test_a_connection_that_ends_before_the_welcome_is_made_again(world: World) -> None:
    world.connect()
    descriptor = world.link.descriptor

    world.close_broker()
    world.turn_until(lambda: world.link.descriptor < 0)

    assert world.link.reconnect_at_s is not None
    assert not world.looks_at(descriptor)


def test_a_broker_that_has_welcomed_notices_the_end_itself(connected: World) -> None:
    descriptor = connected.link.descriptor

    connected.close_broker()
    connected.turn_until(lambda: connected.link.descriptor < 0)

    assert connected.link.reconnect_at_s is None
    assert not connected.looks_at(descriptor)


def test_the_next_broker_hears_what_has_begun_and_not_what_has_not(connected: World) -> None:
    connected.instance.states = States()  # type: ignore[assignment]
    connected.execute(work(1), work(2, batch=2))
    link = connected.link
    begun = link.batches.popleft()
    assert (1, [(A, 1)]) == (begun.number, [pending.route for pending in begun])

    hello = connected.connect()

    assert [(A, 1)] == hello.received
    assert [] == hello.unconfirmed, "who asked repeats what was not begun"
    assert ([(A, 1)], []) == (list(link.pending), list(link.batches))
    assert ["all"] == connected.instance.states.ended  # type: ignore[union-attr]


def test_an_answer_that_may_be_lost_is_told_again_with_the_hello(connected: World) -> None:
    connected.execute(work(1))
    [[pending]] = connected.link.batches
    connected.link.batches.clear()
    pending.send(pb_utils.InferenceResponse(parameters={"n": 1}), wire.FINAL)
    [outcome] = connected.receive(wire.Results).outcomes

    hello = connected.connect()

    assert ([], [outcome]) == (hello.received, hello.unconfirmed)
    assert [{"n": 1}] == [wire.decode_response(b).parameters for b in connected.hello_bodies]


def test_the_readers_of_streams_hear_how_many_responses_had_left(connected: World) -> None:
    connected.instance.is_decoupled = True
    connected.execute(work(1), work(2), work(3))
    link = connected.link
    link.batches.clear()
    streams = [link.pending[A, own_id] for own_id in (1, 2, 3)]
    for stream, count in zip(streams, (3, 2, 0), strict=True):
        for _ in range(count):
            stream.send(pb_utils.InferenceResponse(), 0)
    streams[1].send(pb_utils.InferenceResponse(), 0, waits=True)
    connected.send(wire.StreamAcks([wire.StreamAck(A, 2, 2)]))

    connected.connect()

    outcomes = connected.receive(wire.Results).outcomes
    counts = {row.id: row.number for row in outcomes if row.flags == wire.SENT}
    assert {1: 3, 2: 3, 3: 0} == counts
    assert [True, True, False] == [stream.is_in_doubt() for stream in streams]
    connected.send(wire.StreamAcks([wire.StreamAck(A, 1, 3), wire.StreamAck(A, 2, 3)]))
    assert [False] * 3 == [stream.is_in_doubt() for stream in streams]


def test_what_has_not_left_does_not_count_as_lost_with_the_broker(connected: World) -> None:
    connected.instance.is_decoupled = True
    connected.execute(work(1))
    connected.link.batches.clear()
    stream = connected.link.pending[A, 1]
    stream.send(pb_utils.InferenceResponse(), 0)
    for _ in range(2):
        stream.send(pb_utils.InferenceResponse(), 0, waits=True)

    connected.connect()

    outcomes = connected.receive(wire.Results).outcomes
    assert [(1, wire.SENT), (1, 0), (2, 0)] == [(row.number, row.flags) for row in outcomes]


def test_a_response_that_cannot_leave_shows_that_the_broker_is_dead(
    connected: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected.instance.is_decoupled = True
    connected.execute(work(1))
    looks: list[bool] = []
    monkeypatch.setattr(connected.link, "poll", lambda: looks.append(True))
    stream = connected.link.pending[A, 1]
    stream.send(pb_utils.InferenceResponse(), 0)
    looks.clear()

    connected.close_broker()
    for _ in range(3):
        stream.send(pb_utils.InferenceResponse(), 0)

    assert -1 == connected.link.descriptor
    assert [True] * 2 == looks, "once that is known, the next one is looked for each time"


def test_what_waited_to_be_executed_again_fails_when_the_broker_dies(connected: World) -> None:
    connected.instance.is_iterative = True
    connected.execute(work(1))
    [[pending]] = connected.link.batches
    connected.link.batches.clear()
    pending.has_run = pending.is_rescheduled = True
    connected.execute(work(1, batch=2))

    [outcome] = connected.connect().unconfirmed
    assert "before the rescheduled request could be executed again" in outcome.text
    assert {} == connected.link.pending


# --------------------------------------------------------------------- batches


def test_requests_come_in_their_batches(connected: World) -> None:
    connected.execute(work(1), work(2), work(3, batch=2))

    assert [(1, [1, 2]), (2, [3])] == [
        (batch.number, [pending.work.id for pending in batch]) for batch in connected.link.batches
    ]
    assert {(A, 1), (A, 2), (A, 3)} == set(connected.link.pending)
    assert {OpenRequest} == {type(pending) for pending in connected.link.pending.values()}


def test_requests_of_a_decoupled_model_are_streams(connected: World) -> None:
    connected.instance.is_decoupled = True
    connected.execute(work(1))
    connected.link.batches.clear()
    stream = connected.link.pending[A, 1]
    assert type(stream) is OpenStream

    for _ in range(3):
        stream.send(pb_utils.InferenceResponse(), 0)
    connected.send(wire.StreamAcks([wire.StreamAck(A, 1, 2), wire.StreamAck(A, 9, 2)]))

    # what is acknowledged counts before anybody waits for room
    assert 2 == stream._taken
    assert [wire.RequestKey(A, 1)] == connected.connect().received
    stream.send(None, wire.FINAL)
    assert [(1, 3)] == [(end.id, end.number) for end in connected.connect().unconfirmed]


def test_the_end_of_a_sequence_is_no_request(connected: World) -> None:
    connected.instance.states = States()  # type: ignore[assignment]

    connected.execute(work(1, flags=wire.SEQUENCE_OVER, correlation=8), work(2))

    assert [8] == connected.instance.states.ended  # type: ignore[union-attr]
    assert [(1, [2])] == [
        (batch.number, [pending.work.id for pending in batch]) for batch in connected.link.batches
    ]


def test_a_model_without_states_has_no_sequences_to_end(connected: World) -> None:
    connected.execute(work(1, flags=wire.SEQUENCE_OVER, correlation=8))

    assert ([], {}) == (list(connected.link.batches), connected.link.pending)


def test_a_request_that_is_executed_again_stays_what_it_is(connected: World) -> None:
    connected.execute(work(1))
    pending = connected.link.pending[A, 1]
    connected.link.batches.clear()
    pending.is_rescheduled = True

    connected.execute(work(1, batch=2))

    assert pending is connected.link.pending[A, 1]
    assert 2 == pending.work.batch


def test_the_loop_is_woken_while_it_waits_and_only_then(connected: World) -> None:
    link = connected.link

    for is_waiting in (False, True):
        link.is_waiting = is_waiting
        connected.execute(work(1 + is_waiting))

        assert is_waiting == bool(select.select([connected.watch.bell_descriptor], [], [], 0)[0])
    connected.watch.awake()
    assert [] == select.select([connected.watch.bell_descriptor], [], [], 0)[0]


def test_answers_are_kept_until_the_broker_must_have_passed_them_on(
    connected: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unconfirmed_answers, "SETTLED_NS", 0)
    connected.execute(work(1))
    connected.link.pending[A, 1].send(pb_utils.InferenceResponse(), wire.FINAL)
    ids = itertools.count(2)

    connected.execute(work(next(ids), flags=wire.ANSWERS_WAIT))
    assert 1 == len(connected.link.answered.kept)

    def is_forgotten() -> bool:
        connected.execute(work(next(ids)))
        return not connected.link.answered.kept

    eventually(is_forgotten, 30)


def test_what_was_not_looked_for_may_have_come_before() -> None:
    dealer = PlayedDealer(lambda message, bodies: ())
    line = BrokerLine(select.epoll(), lambda _: dealer)
    line.connect("", Mock())
    dealer.is_dry, dry_ns = True, line.dry_ns

    line.turn()
    assert dry_ns == line.dry_ns
    line.turn()
    assert dry_ns < line.dry_ns


# ------------------------------------------------------------------ other words


def test_a_cancelled_request_hears_of_it(connected: World) -> None:
    connected.execute(work(1), work(2))

    connected.send(wire.CancelExecution([wire.RequestKey(A, 2), wire.RequestKey(A, 9)]))

    assert [False, True] == [p.is_cancelled for p in connected.link.pending.values()]


def test_what_makes_no_sense_is_counted_and_dropped(connected: World) -> None:
    connected.say_raw(b"\xc1")
    connected.send(wire.Execute([work(1)]))  # without its body
    connected.send(wire.Execute([]))
    connected.send(wire.Release([]))

    assert (4, {}) == (connected.link.malformed, connected.link.pending)


def test_a_turn_that_only_sends_leaves_what_has_arrived(connected: World) -> None:
    connected.router.send([connected.identity, wire.encode(wire.Sync(4))])
    assert select.select([connected.link.descriptor], [], [], 30)[0]
    connected.link.put([wire.encode(wire.Synced(9))])

    connected.link.turn(takes=False)

    assert wire.Synced(9) == connected.receive(wire.Synced)
    assert not connected.router.poll(0)
    connected.turn_until(lambda: connected.router.poll(0))
    assert wire.Synced(4) == connected.receive(wire.Synced)


# --------------------------------------------------------------------- the end


def test_what_is_sent_after_the_end_is_dropped(connected: World) -> None:
    connected.link.close()
    connected.link.close()

    connected.link.send([wire.encode(wire.Synced(1))])

    assert connected.link.is_closed
    # what nobody will read would only grow
    assert not connected.link.line.outgoing


def test_what_was_sent_before_the_end_arrives(connected: World) -> None:
    connected.link.send([wire.encode(wire.Synced(1))])

    connected.link.close()

    assert wire.Synced(1) == connected.receive(wire.Synced)


def test_a_fork_leaves_the_connection_to_its_parent(connected: World) -> None:
    connected.link.put([wire.encode(wire.Synced(1))])

    connected.link.line.abandon()
    connected.link.turn()

    assert connected.link.is_closed
    assert not connected.router.poll(50)


def test_waiting_ends_when_something_arrives_or_in_time(connected: World) -> None:
    connected.link.wait(0)

    connected.router.send([connected.identity, wire.encode(wire.Sync(4))])
    connected.link.wait(30_000)
    connected.turn_until(lambda: connected.router.poll(0))

    assert wire.Synced(4) == connected.receive(wire.Synced)


def test_a_thread_that_finds_another_one_at_work_leaves_it_the_rest(connected: World) -> None:
    # as a thread that is amid a write
    with connected.link.line.lock:
        connected.link.send([wire.encode(wire.Synced(1))])
        assert not connected.router.poll(0)

    connected.link.turn()

    assert wire.Synced(1) == connected.receive(wire.Synced)


# ----------------------------------------------------------------- destructors


def test_a_sender_that_ends_waits_for_nobody_and_the_loop_ends_its_request(
    connected: World,
) -> None:
    connected.execute(work(5))
    senders = [connected.link.pending[A, 5].make_sender()]

    with holding_in_another_thread(state_lock):
        # what the other thread waits for may be held by this one, wherever a destructor comes
        senders.clear()
    assert (A, 5) in connected.link.pending
    connected.link.settle()

    [outcome] = connected.receive(wire.Results).outcomes
    assert 5 == outcome.id
    assert "let go" in outcome.text


@contextmanager
def holding_in_another_thread(lock: Any) -> Iterator[None]:
    held, is_over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            is_over.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    yield
    is_over.set()
    thread.join()


@pytest.mark.parametrize("publishes", [True, False])
def test_who_publishes_nothing_takes_no_subscribers(world: World, publishes: bool) -> None:
    if publishes:
        address = endpoints.stream_address(str(world.directory), 7)
        world.make_link(Publisher(address, endpoints.listen(str(world.directory), 7)))
    world.connect()
    listener = endpoints.listen(str(world.directory), 8)

    world.link.listen(listener)

    with nullcontext() if publishes else pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(listener)
