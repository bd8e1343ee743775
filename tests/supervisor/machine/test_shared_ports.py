"""New connections to a port of several servers, each played by a socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from zmqtriton.supervisor.machine.shared_ports import SharedPort

_MANY = 60


class Played:
    """A server on the port: its socket, and what the supervisor does with it."""

    def __init__(self, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.socket(family)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.socket.bind((host, port))
        self.port = SharedPort(self.socket)

    def open(self) -> Played:
        self.port.before_listening()
        self.socket.listen(4096)
        self.socket.setblocking(False)
        self.port.take_back()
        self.port.look()
        return self

    def close(self) -> None:
        self.socket.close()

    def accept_all(self) -> int:
        """Return how many had connected."""
        count = 0
        while True:
            try:
                self.socket.accept()[0].close()
            except BlockingIOError:
                return count
            count += 1


class Street:
    """One port."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._host = host
        self._number = 0
        self._stack = ExitStack()

    def server(self) -> Played:
        played = Played(self._host, self._number)
        self._number = played.socket.getsockname()[1]
        self._stack.callback(played.close)
        return played.open()

    def connect(self, *servers: Played) -> list[int]:
        """Connect often; return how many came to each server."""
        with ExitStack() as stack:
            for _ in range(_MANY):
                stack.enter_context(socket.create_connection((self._host, self._number), 10))
            return [server.accept_all() for server in servers]

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def street() -> Iterator[Street]:
    street = Street()
    yield street
    street.close()


@pytest.mark.row("--reuse-http-port", "--reuse-grpc-port")
def test_connections_go_to_the_other_server_until_they_are_taken_back(street: Street) -> None:
    old, new = street.server(), street.server()
    assert 0 not in street.connect(old, new)

    assert 1 == old.port.send_elsewhere()
    assert [0, _MANY] == street.connect(old, new)

    old.port.take_back()
    assert 0 not in street.connect(old, new)


def test_the_newer_one_may_leave_as_well(street: Street) -> None:
    old, new = street.server(), street.server()

    new.port.send_elsewhere()

    assert [_MANY, 0] == street.connect(old, new)


def test_a_chain_of_servers_replaces_one_another(street: Street) -> None:
    old = street.server()
    for _ in range(3):
        new = street.server()
        assert not new.port.look(), "who is first is known when the other has gone"
        old.port.send_elsewhere()
        assert [0, _MANY] == street.connect(old, new)
        old.close()
        assert new.port.look()
        assert [_MANY] == street.connect(new)
        old = new


@pytest.mark.parametrize("leaving", range(3))
def test_of_three_servers_two_share_the_connections_of_the_one_that_leaves(
    street: Street, leaving: int
) -> None:
    servers = [street.server() for _ in range(3)]

    assert 2 == servers[leaving].port.send_elsewhere()

    counts = street.connect(*servers)
    assert 0 == counts.pop(leaving)
    assert 0 not in counts


def test_where_it_is_not_known_who_came_first_connections_go_to_all(street: Street) -> None:
    gone, middle, last = (street.server() for _ in range(3))
    gone.close()

    assert 1 == middle.port.send_elsewhere()

    assert 0 not in street.connect(middle, last)


def test_a_server_that_is_alone_keeps_its_connections(street: Street) -> None:
    alone = street.server()

    assert 0 == alone.port.send_elsewhere()

    assert [_MANY] == street.connect(alone)


def test_a_socket_for_all_addresses_of_both_families_is_known() -> None:
    street = Street("::")
    try:
        old, new = street.server(), street.server()

        assert 1 == old.port.send_elsewhere()

        assert [0, _MANY] == street.connect(old, new)
    finally:
        street.close()
