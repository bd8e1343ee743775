"""The way of records to their process, with real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.scenarios import scenario
from zmqtriton.sdk.lines.line import Line


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        listener.settimeout(60)
        yield listener


def connected(listener: socket.socket) -> tuple[Line, socket.socket]:
    line = Line(str(listener.getsockname()))
    assert line.has_room(1)
    receiver, _ = listener.accept()
    receiver.setblocking(False)
    return line, receiver


@scenario(asyncio.run)
async def test_records_of_a_moment_go_together(listener: socket.socket) -> None:
    line, receiver = connected(listener)
    with receiver:
        line.send(b"one")
        line.send(b"two")
        with pytest.raises(BlockingIOError):
            receiver.recv(100)

        loop = asyncio.get_running_loop()
        assert await asyncio.wait_for(loop.sock_recv(receiver, 100), 60) == b"onetwo"
        line.close()


@scenario(asyncio.run)
async def test_what_the_socket_does_not_take_follows(listener: socket.socket) -> None:
    line, receiver = connected(listener)
    data = bytes(range(256)) * 10_000
    with receiver:
        line.send(data)
        line.send(b"last")

        loop, received = asyncio.get_running_loop(), b""
        while len(received) < len(data) + 4:
            received += await asyncio.wait_for(loop.sock_recv(receiver, 1 << 16), 60)
        assert data + b"last" == received
        line.close()


@scenario(asyncio.run)
async def test_a_line_that_closes_sends_the_rest(listener: socket.socket) -> None:
    line, receiver = connected(listener)
    with receiver:
        line.send(b"last")

        line.close()

        assert receiver.recv(100) == b"last"
        assert receiver.recv(100) == b""


@scenario(asyncio.run)
async def test_a_receiver_that_has_gone_costs_records_alone(listener: socket.socket) -> None:
    line, receiver = connected(listener)
    receiver.close()
    line.send(b"lost")
    line.close()

    assert line.has_room(1) is False
