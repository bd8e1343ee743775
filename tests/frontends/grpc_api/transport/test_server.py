"""Our own transport, clients that do what gRPC's library never does, and turns of busy ones."""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import uvloop

from tests.faults import floods
from tests.frontends.fake_gateway import LendingArena, version_info
from tests.frontends.grpc_api.fake_gateway import INFER, LIVE, STREAM, FakeGateway, written
from tests.frontends.grpc_api.serving import GrpcServerThread, end_within, serving
from tests.support import raw_http2 as h2
from tests.support.garbage import Watched
from tests.support.scenarios import scenario
from tests.support.waiting import eventually, until
from zmqtriton_frontends.grpc_api.transport import connection as native_connection
from zmqtriton_frontends.grpc_api.transport import server as native_server
from zmqtriton_frontends.grpc_api.transport.server import NativeServer
from zmqtriton_frontends.process import client_progress, turns
from zmqtriton_frontends.tensors.arena_body import ArenaBuffer

pytestmark = pytest.mark.slow

_INTERNAL, _UNAVAILABLE = 13, 14


def status(number: int) -> bytes:
    digits = str(number).encode()
    return b"\x0bgrpc-status" + bytes([len(digits)]) + digits


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        (INFER, [h2.frame(h2.DATA, h2.END_STREAM, 1)]),
        (INFER, [h2.frame(h2.DATA, h2.END_STREAM, 1, b"\0\0\0")]),
        (INFER, [h2.data_frame(1, b"cut", length=10, flags=h2.END_STREAM)]),
        (STREAM, [h2.data_frame(1, b"cut", length=10, flags=h2.END_STREAM)]),
        (INFER, [h2.frame(h2.DATA, 0, 1, b"\x07" + bytes(4))]),
        (INFER, [h2.frame(h2.DATA, h2.END_STREAM, 1, b"\x07" + bytes(4))]),
        (INFER, [h2.frame(h2.DATA, h2.END_STREAM, 1, b"\x01\0\0\0\x03abc")]),
    ],
)
def test_a_request_that_is_none_gets_a_status(
    server: GrpcServerThread, path: str, sent: list[bytes]
) -> None:
    with server.connect() as connection:
        connection.send(h2.headers_frame(1, path), *sent)
        assert status(_INTERNAL) in connection.read_until(status(_INTERNAL))

        # And the next one is answered. Who has sent all is not asked to stop.
        connection.send(h2.headers_frame(3, LIVE), h2.data_frame(3, b"", flags=h2.END_STREAM))
        assert status(0) in connection.read_until(status(0))
        assert bool(sent[-1][4] & h2.END_STREAM) != (
            h2.frame(h2.RESET, 0, 1, bytes(4)) in connection.received
        )


def test_a_second_request_where_there_may_be_one_ends_both(server: GrpcServerThread) -> None:
    server.hold()
    with server.connect() as connection:
        connection.send(h2.headers_frame(1, INFER), h2.data_frame(1, written()))
        eventually(lambda: server.gateway.requests, within_s=20)

        connection.send(h2.data_frame(1, written()))

        assert status(_INTERNAL) in connection.read_until(status(_INTERNAL))
        eventually(lambda: server.gateway.cancelled == 1, within_s=20)


def test_what_comes_behind_a_request_takes_no_room_once_that_is_answered(
    server: GrpcServerThread,
) -> None:
    release = server.hold()
    with server.connect() as connection:
        behind = h2.data_frame(1, bytes(10_000), length=100_000)
        connection.send(h2.headers_frame(1, INFER), h2.data_frame(1, written()), behind)
        eventually(lambda: server.ledger.requests.held >= 10_000, within_s=20)

        release()

        assert status(0) in connection.read_until(status(0))
        eventually(lambda: server.ledger.requests.held == 0, within_s=20)


@pytest.mark.parametrize("first", [b"", b"PRI * HTTP/2", h2.PREFACE])
def test_who_does_not_introduce_itself_is_left(
    server: GrpcServerThread, monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    monkeypatch.setattr(native_connection, "_INTRODUCTION_S", 0.1)
    with server.connect(first) as connection:
        connection.read_to_the_end()


_HALVES = {
    "a header of a frame": b"\0\0\x08\6",
    "a frame": h2.frame(h2.PING, 0, 0, b"any body")[:-1],
    "a block of headers": h2.headers_frame(1, INFER, flags=0),
    "data": h2.headers_frame(1, INFER) + h2.data_frame(1, bytes(100))[:-1],
    "a message": h2.headers_frame(1, INFER) + h2.data_frame(1, bytes(100), length=256),
}


@pytest.mark.parametrize("name", _HALVES)
def test_who_stops_amid_a_frame_is_left(
    server: GrpcServerThread, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(client_progress, "STALL_S", 0.1)
    monkeypatch.setattr(native_connection, "_LOOK_S", 0.05)
    with server.connect() as connection:
        connection.send(_HALVES[name])

        connection.read_to_the_end()


def test_who_goes_on_amid_a_frame_is_waited_for(
    server: GrpcServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    # seventeen bytes take longer than that, and a busy machine is not as late with any of them
    monkeypatch.setattr(client_progress, "STALL_S", 1.2)
    monkeypatch.setattr(client_progress, "MIN_BYTES", 1)
    monkeypatch.setattr(native_connection, "_LOOK_S", 0.05)
    ping = h2.frame(h2.PING, 0, 0, b"any body")
    with server.connect() as connection:
        for number in range(len(ping)):
            connection.send(ping[number : number + 1])
            time.sleep(0.1)

        assert b"any body" in connection.read_until(b"any body")


def test_who_never_calls_anything_is_told_to_go(
    server: GrpcServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_connection, "_INTRODUCTION_S", 0.1)
    monkeypatch.setattr(native_connection, "_FIRST_CALL_S", 0.1)
    goaway = bytes([h2.GOAWAY, 0, 0, 0, 0, 0])
    with server.connect() as connection:
        assert goaway in connection.read_until(goaway, within_s=60)


def test_headers_that_are_no_request_reset_their_stream(server: GrpcServerThread) -> None:
    block = h2.header_block(LIVE).replace(b"\x83", b"")  # :method
    with server.connect() as connection:
        connection.send(h2.frame(h2.HEADERS, h2.END_HEADERS, 1, block))
        protocol_error = h2.frame(h2.RESET, 0, 1, bytes((0, 0, 0, 1)))
        assert protocol_error in connection.read_until(protocol_error)


def test_a_large_answer_waits_for_its_reader_and_is_whole(server: GrpcServerThread) -> None:
    count = 3000
    with server.connect(h2.PREFACE + h2.NO_WINDOW) as connection:
        connection.send(
            h2.headers_frame(1, INFER), h2.data_frame(1, written(count=count), flags=h2.END_STREAM)
        )
        connection.send(h2.frame(h2.PING, 0, 0, b"any body"))
        connection.read_until(b"any body")
        assert status(0) not in connection.received

        connection.send(h2.settings_frame({4: 4 * count + 1000}))

        assert b"abcd" * count in connection.read_until(status(0))


def test_a_connection_that_says_nothing_more_leaves_nothing_behind(
    server: GrpcServerThread,
) -> None:
    server.hold()
    with server.connect() as connection:
        for number in range(1, 41, 2):
            connection.send(h2.headers_frame(number, INFER), h2.data_frame(number, written()))
        eventually(lambda: len(server.gateway.requests) == 20, within_s=20)

    eventually(lambda: server.gateway.cancelled == 20, within_s=20)


class OnePlace(LendingArena):
    """An arena with room for one message."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._place: Watched | None = Watched(size)
        self.watched = weakref.ref(self._place)

    def reserve_now(self, size: int, tensors_at: int) -> ArenaBuffer:
        assert self._place is not None
        view, self._place = memoryview(self._place)[:size], None
        arena: Any = self
        return ArenaBuffer(view, arena, 7)


@pytest.mark.usefixtures("no_garbage_collection")
def test_nothing_of_a_large_request_that_is_cancelled_waits_for_the_garbage_collector(
    server: GrpcServerThread,
) -> None:
    count, data = 100_000, written(count=100_000)
    place = OnePlace(len(data))

    server.hold()
    server.gateway.payload = place
    with server.connect() as connection:
        prefix = b"\0" + len(data).to_bytes(4, "big")
        parts = [(prefix + data)[at : at + 16_000] for at in range(0, 4 * count + 200, 16_000)]
        connection.send(
            h2.headers_frame(1, INFER), *(h2.frame(h2.DATA, 0, 1, p) for p in parts if p)
        )
        eventually(lambda: server.gateway.requests, within_s=20)
        server.run_function(server.gateway.requests.clear)
        assert place.watched() is not None

        connection.send(h2.reset_frame(1))

        eventually(lambda: place.freed == [7], within_s=20)
        server.run_function(server.gateway.pending_tasks.clear)
        eventually(lambda: place.watched() is None, within_s=20)


def test_who_does_not_read_is_not_read_from(
    server: GrpcServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_connection, "_CLOSE_S", 0.1)
    # Each of these is answered, with a hundred bytes and more.
    calls = (
        h2.headers_frame(n, "/unknown") + h2.data_frame(n, b"", flags=h2.END_STREAM)
        for n in range(1, 1_000_000, 2)
    )
    with server.connect() as connection:
        while connection.send_within(1.0, *itertools.islice(calls, 5000)):
            assert next(calls, b""), "the server answers without end"

        # and is waited for no longer once the connection is to end
        [there] = server.native.room
        server.run_function(there.end)
        eventually(lambda: not server.native.count_connections(), within_s=20)


@scenario(asyncio.run)
async def test_a_port_that_was_shut_down_elsewhere_is_listened_at_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as first:
        address = first.getsockname()
    # at a port that was named, since any other would change
    bound = socket.create_server(address)
    server = native_server.NativeServer(FakeGateway(), [bound])
    await server.open()
    with bound.dup() as elsewhere:
        elsewhere.shutdown(socket.SHUT_RD)

    server.check()

    with socket.socket() as client:
        await until(lambda: not client.connect_ex(address))
    await end_within(server, 0)


def keepalive(**more: Any) -> AbstractContextManager[GrpcServerThread]:
    settings = {"grpc_keepalive_time": 50, "grpc_keepalive_timeout": 100, **more}
    return serving(FakeGateway(version_info("m"), settings=settings))


@pytest.mark.row("--grpc-keepalive-time", "--grpc-keepalive-timeout")
def test_a_client_that_is_not_there_is_asked_and_then_left() -> None:
    with (
        keepalive(grpc_keepalive_permit_without_calls=True) as server,
        server.connect() as connection,
    ):
        connection.send(h2.headers_frame(1, STREAM))

        connection.read_until(b"keepalive_timeout")

        assert {h2.PING, h2.GOAWAY} <= {*connection.frame_types()}


@pytest.mark.row("--grpc-keepalive-permit-without-calls")
def test_a_client_that_asks_nothing_is_not_asked_either() -> None:
    with keepalive() as server, server.connect() as connection:
        connection.read_for(0.5)

        assert h2.PING not in connection.frame_types()
        connection.send(h2.headers_frame(1, LIVE), h2.data_frame(1, b"", flags=h2.END_STREAM))
        assert status(0) in connection.read_until(status(0))


def test_where_there_are_too_many_connections_the_oldest_idle_one_has_to_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native_server, "_MAX_CONNECTIONS", 2)
    goaway = bytes([h2.GOAWAY, 0, 0, 0, 0, 0])
    with (
        serving(FakeGateway(version_info("m"))) as server,
        server.connect() as first,
        server.connect() as second,
    ):
        for connection in (first, second):
            connection.send(h2.frame(h2.PING, 0, 0, b"any body"))
            connection.read_until(b"any body")

        with server.connect() as third:
            third.send(h2.frame(h2.PING, 0, 0, b"any body"))
            assert b"any body" in third.read_until(b"any body")

        assert goaway in first.read_until(goaway)
        second.send(h2.frame(h2.PING, 0, 0, b"still on"))
        assert b"still on" in second.read_until(b"still on")


#: The work of several turns, and no more than is received at once.
FLOOD_BYTES = 220_000
#: The others end their connection, or cost too little.
NAMES = sorted({*floods.FLOODS} - {"fields", "table sizes", "large entries", "huffman", "windows"})


class Turning:
    """A server with the loop of the test: it does nothing while the test does something."""

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
def turning(monkeypatch: pytest.MonkeyPatch) -> Iterator[Turning]:
    # a fast machine needs more than one, too
    monkeypatch.setattr(turns, "ROUND_S", 0.0003)
    monkeypatch.setattr(turns, "_TURN_S", 0.0003)
    loop = uvloop.new_event_loop()
    turning = Turning(loop)
    loop.run_until_complete(turning.start())
    yield turning
    turning.close()
    loop.close()


def ask(connection: h2.Connection, stream: int) -> None:
    connection.send(h2.headers_frame(stream, LIVE), h2.data_frame(stream, b"", flags=h2.END_STREAM))


@pytest.mark.parametrize("name", NAMES)
def test_others_are_answered_before_a_flood_is_over(turning: Turning, name: str) -> None:
    with h2.Connection(turning.port) as greedy, h2.Connection(turning.port) as other:
        turning.until_answered(greedy)
        ask(other, 1)
        turning.until_in(other, b"grpc-status")
        other.received = b""

        greedy.send(*floods.chunks(name, 1, FLOOD_BYTES), h2.frame(h2.PING, 0, 0, b"the last"))
        ask(other, 3)
        turning.until_in(other, b"grpc-status")

        greedy.read_now()
        assert b"the last" not in greedy.received
        turning.until_in(greedy, b"the last")
        assert h2.GOAWAY not in greedy.frame_types()
