"""The sockets of the broker: hellos, messages in their order, and checks of who is idle."""

from __future__ import annotations

import gc
import select
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.broker.world import TOKEN
from tests.support.waiting import eventually
from zmqtriton.broker import sending as module
from zmqtriton.broker.core import BrokerCore
from zmqtriton.broker.idle_checks import ANSWER_WITHIN_NS, EVERY_NS, IdleChecks
from zmqtriton.broker.scheduling.instances import Occupation
from zmqtriton.broker.sending import PeerRouter, PeerSending
from zmqtriton.broker.service import Hellos
from zmqtriton_floor import wire
from zmqtriton_floor.zmtp import Dealer, ZmtpConnection

# ------------------------------------------------------------------------------ router
# The peers behind the connections of a ROUTER, with real sockets.


PEER = 7


REPLY = (wire.Reply(5, 0, "", wire.FINAL), b"body")


class World:
    """A router and its peers."""

    def __init__(self, directory: Path) -> None:
        self._address = f"ipc://{directory}/requests"
        self._epoll = select.epoll()
        self.router = PeerRouter(self._address, self._epoll)
        self.dealers: dict[int, Dealer] = {}

    def connect(self, serial: int) -> ZmtpConnection:
        """Let a peer say hello."""
        dealer = self.dealers[serial] = Dealer(self._address)
        dealer.put([b"hello"])
        dealer.flush()
        connection, frames = self.receive()
        assert [b"hello"] == frames
        self.router.introduce(connection, serial)
        return connection

    def look(self) -> None:
        for descriptor, events in self._epoll.poll(0):
            self.router.hears[descriptor](events)
        for dealer in self.dealers.values():
            dealer.flush()

    def receive(self) -> tuple[ZmtpConnection, list[bytes]]:
        def has_come() -> bool:
            self.look()
            return bool(self.router.inbox)

        eventually(has_come, 30)
        return self.router.inbox.popleft()

    def heard(self, serial: int, count: int = 1) -> list[list[bytes]]:
        """Return the next messages that a peer gets."""
        self.router.flush()
        dealer, heard = self.dealers[serial], list[list[bytes]]()

        def has_all() -> bool:
            self.look()
            while dealer.has_input():
                heard.append(dealer.receive())
            return len(heard) >= count

        eventually(has_all, 30)
        return heard

    def close(self) -> None:
        for dealer in self.dealers.values():
            dealer.close()
        self.router.close_all()
        self._epoll.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def test_rows_share_messages_as_far_as_they_may(world: World) -> None:
    world.connect(PEER)
    rows = [(wire.Reply(i, 0, "", wire.FINAL), b"%d" % i) for i in range(5)]
    world.router.send_rows(PEER, wire.Replies, rows, max_rows=2)
    world.router.send_rows(PEER, wire.Replies, rows[:1])
    world.router.send_rows(9, wire.Replies, rows)
    world.router.send_list(PEER, wire.Release, [wire.Block(7, 1, i) for i in range(3)])
    world.router.send_list(9, wire.Release, [wire.Block(7, 1, 1)])

    *replies, release = world.heard(PEER, 5)

    told = [[reply.id for reply in wire.decode(header).replies] for header, *_ in replies]
    assert [[0, 1], [2, 3], [4], [0]] == told
    assert [[b"0", b"1"], [b"2", b"3"], [b"4"], [b"0"]] == [bodies for _, *bodies in replies]
    assert 3 == len(wire.decode(release[0]).blocks)


def test_a_connection_that_ends_by_itself_is_reported_once(world: World) -> None:
    connection = world.connect(PEER)
    assert ([], set()) == (world.router.take_lost(), world.router.undelivered())

    world.dealers[PEER].close()

    def is_closed() -> bool:
        world.look()
        return connection not in world.router.connections

    eventually(is_closed, 30)
    assert world.router.has_duties
    assert ([PEER], []) == (world.router.take_lost(), world.router.take_lost())
    assert {connection} == world.router.undelivered(), "what was sent there may be lost"

    world.router.disconnect(PEER)
    assert set() == world.router.undelivered()
    assert ({}, {}) == (world.router.serials, world.router.by_serial)


def test_a_peer_that_is_dead_is_not_lost(world: World) -> None:
    connection = world.connect(PEER)

    world.router.disconnect(PEER)
    world.router.disconnect(PEER)

    assert [] == world.router.take_lost()
    assert connection not in world.router.connections
    assert ({}, {}) == (world.router.serials, world.router.by_serial)


@pytest.mark.slow
def test_a_peer_that_does_not_read_keeps_what_was_sent_to_it_back(world: World) -> None:
    connection = world.connect(PEER)
    for _ in range(64):
        world.router.send(PEER, wire.Welcome(1), [bytes(1 << 20)])
    world.router.flush()

    assert {connection} == world.router.undelivered()


def test_all_that_a_dead_peer_has_sent_is_read(world: World) -> None:
    world.connect(PEER)
    dealer = world.dealers[PEER]
    for number in range(3):
        dealer.put([b"%d" % number, bytes(1 << 14)])
    dealer.flush()
    assert not dealer.is_blocked
    dealer.close()

    world.router.read_all_of(PEER)
    world.router.read_all_of(9)

    assert [b"0", b"1", b"2"] == [frames[0] for _, frames in world.router.inbox]


# ------------------------------------------------------------------------------ hellos
# A hello of several parts.


class AnyConnection:
    """Stands for one; that it exists is all that counts."""


def _part(first: int, *, is_continued: bool) -> tuple[wire.Hello, list[bytes]]:
    outcome = wire.Outcome(1, first + 1, 0, "", wire.FINAL)
    hello = wire.Hello(7, TOKEN, 2, [wire.RequestKey(1, first)], [outcome], 3, 4)
    return hello._replace(is_continued=int(is_continued)), [b"body %d" % (first + 1)]


def test_parts_are_put_together_in_their_order() -> None:
    hellos, connection, other = Hellos(), AnyConnection(), AnyConnection()
    for first in (1, 3):
        assert hellos.join(connection, *_part(first, is_continued=True)) is None
    assert hellos.join(other, *_part(11, is_continued=True)) is None

    whole = hellos.join(connection, *_part(5, is_continued=False))

    assert whole is not None
    hello, bodies = whole
    assert [1, 3, 5] == [key.id for key in hello.received]
    assert [2, 4, 6] == [outcome.id for outcome in hello.unconfirmed]
    assert [b"body 2", b"body 4", b"body 6"] == bodies
    assert (7, TOKEN, 2, 3, 4, 0) == (*hello[:3], *hello[5:])
    assert _part(7, is_continued=False) == hellos.join(connection, *_part(7, is_continued=False))


def test_of_a_connection_that_has_ended_nothing_stays() -> None:
    hellos, connection = Hellos(), AnyConnection()
    hellos.join(connection, *_part(1, is_continued=True))

    del connection
    gc.collect()

    # what a connection leaves would only grow
    assert not hellos._begun


# ----------------------------------------------------------------------------- sending
# The messages that the broker's sockets get to send, in order.


OWNER, NEXT = 7, 8


BLOCK = wire.Block(OWNER, 1, 1)


WORK = (wire.BatchedRequest(1, 3, 5, 0, 0, 0, 0), b"body")


class Sent:
    """A socket that writes down what it is to send; each process is behind it."""

    def __init__(self) -> None:
        self.by_serial = {OWNER: b"7", NEXT: b"8"}
        self.messages: list[tuple[int, str]] = []
        #: How many of them were queued when they were written.
        self.flushed = 0
        self.blocked: set[int] = set()
        self.flags: list[int] = []
        #: The blocks that batches took along.
        self.released: list[list[wire.Block]] = []
        self.broken: set[int] = set()
        #: Whatever was sent waits for flush().
        self.unflushed = True

    def send(self, serial: int, message: Any, bodies: list[bytes]) -> bool:
        self.messages.append((serial, type(message).__name__))
        return serial in self.by_serial

    def send_list(self, serial: int, kind: Any, _: Any) -> None:
        self.messages.append((serial, kind.__name__))

    def send_rows(
        self, serial: int, kind: Any, rows: Any, *released: Any, max_rows: int = 0
    ) -> None:
        self.released += released
        self.messages.append((serial, kind.__name__))
        self.flags += [row.flags for row, _ in rows]

    def flush(self) -> None:
        self.flushed = len(self.messages)

    def undelivered(self) -> set[int]:
        return self.blocked | self.broken


class SendingWorld:
    def __init__(self) -> None:
        routers: Any = Sent()
        lifeline: Any = None  # nothing is for the supervisor
        core = BrokerCore()
        self.outbox = core.outbox
        self.sending = PeerSending(core, lifeline, routers, routers)
        self.routers: Sent = routers

    def flush(self) -> list[tuple[int, str]]:
        """Return what went out."""
        self.routers.messages = []
        self.sending.flush()
        assert len(self.routers.messages) == self.routers.flushed, "all leave at the end"
        return self.routers.messages


@pytest.fixture
def sending() -> SendingWorld:
    return SendingWorld()


def test_a_release_waits_for_something_else_that_goes_to_the_owner(
    sending: SendingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zmqtriton.broker.sending.time", SimpleNamespace(monotonic_ns=lambda: 1))
    sending.outbox.releases[OWNER] = [BLOCK]

    assert [] == sending.flush()
    sending.outbox.batched_requests[NEXT] = [WORK]
    assert [(NEXT, "Execute")] == sending.flush()
    sending.outbox.batched_requests[OWNER] = [WORK]

    assert ([(OWNER, "Execute")], [[], [BLOCK]]) == (sending.flush(), sending.routers.released)
    assert 0 == sending.sending.release_at_ns


def test_many_releases_are_a_message_of_their_own(sending: SendingWorld) -> None:
    sending.outbox.releases[OWNER] = [BLOCK] * (wire.MAX_RELEASED + 1)
    sending.outbox.batched_requests[OWNER] = [WORK]

    assert {(OWNER, "Release"), (OWNER, "Execute")} == set(sending.flush())
    assert ([[]], {}) == (sending.routers.released, sending.outbox.releases)


def test_some_replies_may_leave_amid_a_turn(sending: SendingWorld) -> None:
    sending.outbox.replies[OWNER] = [REPLY]

    sending.sending.flush_some_replies()

    assert ([(OWNER, "Replies")], 1) == (sending.routers.messages, sending.routers.flushed)
    assert {} == sending.outbox.replies


@pytest.mark.parametrize("table", ["leases", "releases"])
def test_replies_wait_for_the_end_of_the_turn_if_something_goes_with_them(
    sending: SendingWorld, table: str
) -> None:
    getattr(sending.outbox, table)[OWNER] = [BLOCK]
    sending.outbox.replies[OWNER] = [REPLY]

    sending.sending.flush_some_replies()

    assert [] == sending.routers.messages
    assert (OWNER, "Replies") == sending.flush()[-1]


def test_a_release_does_not_wait_for_long(sending: SendingWorld) -> None:
    sending.outbox.releases[OWNER] = [BLOCK]
    sending.flush()
    now_ns = time.monotonic_ns()
    assert now_ns < sending.sending.release_at_ns <= now_ns + module.RELEASE_WITHIN_NS

    sending.sending.release_at_ns = 1

    assert ([(OWNER, "Release")], {}) == (sending.flush(), sending.outbox.releases)


def test_a_lease_never_waits_and_goes_before_releases() -> None:
    core, requests, stubs = BrokerCore(), Sent(), Sent()
    requests.messages = stubs.messages
    lifeline: Any = None
    sockets: Any = (requests, stubs)
    # a stub that also asks: its leases come by one connection, its replies by the other
    core.expect(wire.ExpectPeer(OWNER, TOKEN, "stub", "m", 0))
    core.outbox.releases[OWNER] = [BLOCK]
    core.outbox.leases[OWNER] = [BLOCK]
    core.outbox.replies[OWNER] = [REPLY]

    PeerSending(core, lifeline, *sockets).flush()

    assert ["LeasesSent", "Lease", "Release", "Replies"] == [kind for _, kind in stubs.messages]


def test_work_is_no_proof_that_answers_have_left_while_somebody_reads_none(
    sending: SendingWorld,
) -> None:
    sending.routers.blocked = {NEXT}
    sending.outbox.batched_requests[OWNER] = [WORK]
    sending.flush()
    sending.routers.blocked.clear()
    sending.outbox.batched_requests[OWNER] = [WORK]
    sending.flush()

    assert [wire.ANSWERS_WAIT, 0] == sending.routers.flags


def test_what_went_to_a_broken_connection_has_not_left(sending: SendingWorld) -> None:
    done: list[str] = []
    sending.routers.broken = {OWNER}

    sending.outbox.once_delivered = [lambda: done.append("")]
    sending.flush()
    assert [] == done
    sending.routers.broken.clear()  # its death was told
    sending.flush()

    assert [""] == done


# ------------------------------------------------------------------------- idle checks
# Idle stubs are asked whether they are there.


class IdleWorld:
    def __init__(self, *serials: int) -> None:
        self.instances: Any = {n: SimpleNamespace(state=Occupation.IDLE) for n in serials}
        self.checked: list[int] = []
        self.lost: list[int] = []
        self.now_ns = 10**12
        self.checks = IdleChecks(self.instances, self.checked.append, self.lost.append)

    def advance(self, nanoseconds: int) -> None:
        """Lets the time pass, with each check when it is due."""
        end_ns = self.now_ns + nanoseconds
        while self.checks.due_ns <= end_ns:
            self.now_ns = max(self.now_ns, self.checks.due_ns)
            self.checks.tick(self.now_ns)
        self.now_ns = end_ns


def test_whoever_answers_is_asked_again_and_again() -> None:
    world = IdleWorld(1, 2)

    for _ in range(100):
        world.advance(EVERY_NS)
        for serial in world.checked[-2:]:
            world.checks.answered(serial)

    assert [1, 2] * 100 <= world.checked
    assert [] == world.lost


def test_who_does_not_answer_is_lost_once() -> None:
    world = IdleWorld(1, 2)
    world.advance(0)
    world.checks.answered(2)

    world.advance(ANSWER_WITHIN_NS - 1)
    assert [] == world.lost

    world.advance(1)
    assert [1] == world.lost


def test_who_executes_may_take_its_time() -> None:
    world = IdleWorld(1)
    world.advance(0)
    world.instances[1].state = Occupation.BUSY

    world.advance(10 * ANSWER_WITHIN_NS)
    world.instances[1].state = Occupation.IDLE
    world.advance(EVERY_NS)

    assert ([1, 1], []) == (world.checked, world.lost)


def test_who_has_gone_is_forgotten() -> None:
    world = IdleWorld(1)
    world.advance(0)
    del world.instances[1]

    world.advance(2 * ANSWER_WITHIN_NS)
    world.instances[1] = SimpleNamespace(state=Occupation.IDLE)
    world.advance(EVERY_NS)

    assert ([1, 1], []) == (world.checked, world.lost)
