"""The law of sockets that wait for a person's tool."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.waiting import eventually
from zmqtriton_extras.inspection.debug_command import editor_head
from zmqtriton_floor import tool_listener
from zmqtriton_floor.tool_listener import ToolListener, peer_of
from zmqtriton_frontends.process.peer_user import user_of_client

LATE = "that took longer than 1 s to begin"
OTHER_HEAD, OTHER_USER = "that began in another way", "of another user"
WHOLE = b"Content-Length: 2\r\n\r\n"


class World:
    """A listener for editors at a port of this machine, its callers and the reasons of refusals."""

    def __init__(self, **more: Any) -> None:
        listening = socket.create_server(("127.0.0.1", 0), backlog=100)
        self._place = listening.getsockname()
        self.refused: list[str] = []
        settings = {"user_of": user_of_client, "on_refusal": self.refused.append, **more}
        head = settings.pop("head", editor_head)
        self.listener = ToolListener(listening, [os.getuid()], head, **settings)
        self.callers: list[socket.socket] = []

    def call(self, data: bytes = b"") -> socket.socket:
        caller = socket.create_connection(self._place, 60)
        caller.sendall(data)
        self.callers.append(caller)
        return caller


@contextmanager
def admitting(
    world: World,
) -> Iterator[tuple[Future[Any], socket.socket]]:
    """The listener at work in a thread; the socket that ends its wait is closed at last."""
    inside, outside = socket.socketpair()
    with inside, outside, ThreadPoolExecutor(1) as pool:
        admitted = pool.submit(world.listener.admit, time.monotonic() + 600, inside)
        try:
            yield admitted, outside
        finally:
            outside.close()
            found = admitted.result(60)
            for connection in [*world.callers, *(found[:1] if found else ())]:
                connection.close()


def has_ended(caller: socket.socket) -> bool:
    try:
        return not caller.recv(1)
    except ConnectionResetError:
        return True


def test_the_first_with_a_whole_head_is_let_in_and_nothing_behind_it_is_read() -> None:
    world = World()
    with admitting(world) as (admitted, _):
        world.call(WHOLE + b"{}")

        connection, head = admitted.result(60)

        assert (WHOLE, b"{}") == (head, connection.recv(10))


@pytest.mark.slow
def test_callers_that_are_silent_or_slow_delay_nobody_and_have_an_end() -> None:
    world = World()
    with admitting(world) as (admitted, _):
        silent, slow = world.call(), world.call(b"Cont")
        assert has_ended(silent)
        assert has_ended(slow)
        assert [LATE] * 2 == world.refused

        world.call()
        late = world.call(WHOLE[:20])
        world.call(WHOLE)
        late.sendall(WHOLE[20:])

        assert WHOLE == admitted.result(60)[1]


@pytest.mark.slow
def test_a_caller_that_drips_has_no_more_time_than_another() -> None:
    world = World(head=lambda data: 0)
    with admitting(world) as (admitted, _):
        dripping = world.call()

        def drip() -> bool:
            try:
                dripping.sendall(b"C")
            except OSError:
                return True
            return bool(world.refused)

        eventually(drip, 60)
        assert [LATE] == world.refused
        assert not admitted.done()


def test_a_flood_of_callers_keeps_no_editor_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_listener, "HEAD_WITHIN_S", 1000.0)
    world = World()
    with admitting(world) as (admitted, _):
        flood = [world.call() for _ in range(tool_listener.MAX_CALLERS + 1)]
        assert has_ended(flood[0])

        world.call(WHOLE)

        assert WHOLE == admitted.result(60)[1]


@pytest.mark.parametrize("said", [b"", WHOLE])
def test_a_connection_of_another_user_is_closed_unread(said: bytes) -> None:
    world = World(user_of=lambda connection: os.getuid() + 1)
    with admitting(world) as (admitted, _):
        assert has_ended(world.call(said))
        assert [OTHER_USER] == world.refused
        assert not admitted.done()


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
        b"\x16\x03\x01",
        b"content-length: 2\r\n\r\n",
        b"Content-Length: x\r\n\r\n",
        b"Content-Length: 2\r\nOrigin: http://evil.example\r\n\r\n",
        b"Content-Length: 2\nX: 1\n\n" + b"x" * 5000,
    ],
)
def test_any_other_beginning_is_closed_and_the_socket_stays_open(said: bytes) -> None:
    world = World()
    with admitting(world) as (admitted, _):
        assert has_ended(world.call(said))
        assert [OTHER_HEAD] == world.refused
        world.call(WHOLE)
        assert WHOLE == admitted.result(60)[1]


def test_one_that_leaves_is_no_refusal() -> None:
    world = World()
    with admitting(world) as (admitted, _):
        world.call(b"Con").close()
        world.call(WHOLE)
        assert WHOLE == admitted.result(60)[1]

    assert not {OTHER_HEAD, LATE} & set(world.refused)


def test_the_wait_has_an_end_by_time_and_by_the_other_side() -> None:
    assert World().listener.admit(time.monotonic()) is None
    world = World()
    with admitting(world) as (admitted, outside):
        left = world.call(b"Cont")
        outside.close()

        assert admitted.result(60) is None
        assert has_ended(left)


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (b"", 0),
        (b"Content-Len", 0),
        (WHOLE[:-1], 0),
        (WHOLE, len(WHOLE)),
        (WHOLE + b"{}\r\n\r\n", len(WHOLE)),
        (b"Content-Length: 2\r\nContent-Type: x; y=z\r\n\r\n", 43),
        (b"Content-Type: x\r\nContent-Length: 2\r\n\r\n", -1),
        (b"Content-Length: 2\r\n\0", 0),
        (b"Content-Length: 2\r\n\0\r\n\r\n", -1),
        (b"Content-Length: 1234567890\r\n\r\n", -1),
    ],
)
def test_heads_of_editors(data: bytes, size: int) -> None:
    assert size == editor_head(data)


def test_the_kernel_names_the_process_and_the_user() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert (os.getpid(), os.getuid()) == peer_of(one)
