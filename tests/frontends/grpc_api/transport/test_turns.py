"""Clients that make much work at little cost, beside one that does not.

The server has the loop of the test, so it does nothing while the test does something.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest
import uvloop

from tests.faults import floods
from tests.frontends.grpc_api.fake_gateway import LIVE, FakeGateway
from tests.frontends.grpc_api.serving import end_within
from tests.support import raw_http2 as h2
from zmqtriton_frontends.grpc_api.transport.server import NativeServer
from zmqtriton_frontends.process import turns

pytestmark = pytest.mark.slow

#: The work of several turns, and no more than is received at once.
FLOOD_BYTES = 220_000
#: The others end their connection, or cost too little.
NAMES = sorted({*floods.FLOODS} - {"fields", "table sizes", "large entries", "huffman", "windows"})


class Serving:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._server: NativeServer
        self.port = 0

    async def start(self) -> None:
        bound = socket.create_server(("127.0.0.1", 0))
        self._server = NativeServer(FakeGateway(), [bound])
        self.port = bound.getsockname()[1]
        await self._server.open()

    def until_answered(self, connection: h2.Connection) -> None:
        """Let the server work until it has sent something to this client."""

        def hear() -> None:
            self._loop.remove_reader(connection.fileno())
            self._loop.stop()

        self._loop.add_reader(connection.fileno(), hear)
        self._loop.run_forever()
        connection.read_now()

    def until_in(self, connection: h2.Connection, text: bytes) -> None:
        while text not in connection.received:
            self.until_answered(connection)

    def close(self) -> None:
        self._loop.run_until_complete(end_within(self._server, 0))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    # a fast machine needs more than one, too
    monkeypatch.setattr(turns, "ROUND_S", 0.0003)
    monkeypatch.setattr(turns, "_TURN_S", 0.0003)
    loop = uvloop.new_event_loop()
    server = Serving(loop)
    loop.run_until_complete(server.start())
    yield server
    server.close()
    loop.close()


def ask(connection: h2.Connection, stream: int) -> None:
    connection.send(h2.headers_frame(stream, LIVE), h2.data_frame(stream, b"", flags=h2.END_STREAM))


@pytest.mark.parametrize("name", NAMES)
def test_others_are_answered_before_a_flood_is_over(server: Serving, name: str) -> None:
    with h2.Connection(server.port) as greedy, h2.Connection(server.port) as other:
        server.until_answered(greedy)
        ask(other, 1)
        server.until_in(other, b"grpc-status")
        other.received = b""

        greedy.send(*floods.chunks(name, 1, FLOOD_BYTES), h2.frame(h2.PING, 0, 0, b"the last"))
        ask(other, 3)
        server.until_in(other, b"grpc-status")

        greedy.read_now()
        assert b"the last" not in greedy.received
        server.until_in(greedy, b"the last")
        assert h2.GOAWAY not in greedy.frame_types()
