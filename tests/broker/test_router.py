"""The peers behind the connections of a ROUTER, with real sockets."""

from __future__ import annotations

import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.waiting import eventually
from zmqtriton.broker.router import Router
from zmqtriton_floor import wire
from zmqtriton_floor.zmtp import Connection, Dealer

PEER, OTHER = 7, 8
REPLY = (wire.Reply(5, 0, "", wire.FINAL), b"body")


class World:
    """A router and its peers."""

    def __init__(self, directory: Path) -> None:
        self._address = f"ipc://{directory}/requests"
        self._epoll = select.epoll()
        self.router = Router(self._address, self._epoll)
        self.dealers: dict[int, Dealer] = {}

    def connect(self, serial: int) -> Connection:
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

    def receive(self) -> tuple[Connection, list[bytes]]:
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


def test_a_message_goes_to_the_peer_of_that_serial(world: World) -> None:
    world.connect(PEER)
    world.connect(OTHER)

    assert world.router.send(OTHER, wire.Welcome(3), [b"body"])
    assert not world.router.send(9, wire.Welcome(3), [])

    assert [[wire.encode(wire.Welcome(3)), b"body"]] == world.heard(OTHER)
    assert not world.dealers[PEER].has_input()


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
    assert [PEER] == world.router.take_lost()
    assert [] == world.router.take_lost()
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


def test_a_stranger_that_ends_is_nobodys_loss(world: World) -> None:
    world.dealers[PEER] = Dealer(world._address)
    world.dealers[PEER].put([b"hello"])
    world.dealers[PEER].flush()
    connection, _ = world.receive()

    world.router.close(connection)

    assert ([], set()) == (world.router.take_lost(), world.router.undelivered())


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
