"""Large answers of our own transport: from where they lie, and for how long they lie there."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import weakref
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.frontends.fake_gateway import version_info
from tests.frontends.grpc_api.fake_gateway import INFER, STREAM, FakeGateway, written
from tests.frontends.grpc_api.serving import GrpcServerThread, serving
from tests.support import raw_http2 as h2
from tests.support.certificates import Authority
from tests.support.garbage import Watched
from tests.support.raw_http import connect_narrow, read_some
from tests.support.scenarios import scenario
from tests.support.streams import item
from tests.support.waiting import eventually, value_at_rest
from zmqtriton_floor.wire import Reference, ResponseBody, Tensor
from zmqtriton_frontends.grpc_api.transport import connection as native_connection
from zmqtriton_frontends.grpc_api.transport import inbox
from zmqtriton_frontends.grpc_api.transport.connection import ClientConnection
from zmqtriton_frontends.grpc_api.transport.server import NativeServer
from zmqtriton_frontends.http2.stream import Http2Stream
from zmqtriton_frontends.process import client_progress

pytestmark = pytest.mark.slow

DATA = os.urandom(6_000_000)
#: Any frame up to 64 KiB, and more data than any answer has.
WIDE = h2.PREFACE + h2.settings_frame({4: 2**31 - 1, 5: 65_536})
WIDE += h2.frame(h2.WINDOW, 0, 0, (1 << 30).to_bytes(4, "big"))


class Mapped:
    """The data of references, which are not kept here when they are opened."""

    def __init__(self) -> None:
        self._memory: Watched | None = Watched(DATA)
        self.watched = weakref.ref(self._memory)

    def open_now(self, response: ResponseBody, kept: object = None) -> ResponseBody:
        assert self._memory is not None
        view, self._memory = memoryview(self._memory), None
        return response._replace(outputs=[response.outputs[0]._replace(data=view)])

    def reserve_now(self, size: int, tensors_at: int) -> None:
        return None


@pytest.fixture
def gateway() -> FakeGateway:
    gateway = FakeGateway(version_info("m"))
    lies = Tensor("OUTPUT0", 11, [len(DATA) // 4], Reference(1, 1, 1, 0, len(DATA)))
    gateway.respond = lambda request: ResponseBody({}, [lies])
    gateway.payload = Mapped()
    return gateway


def ask(connection: h2.Connection, path: str = INFER) -> None:
    data = h2.data_frame(1, written(), flags=h2.END_STREAM if path == INFER else 0)
    connection.send(h2.headers_frame(1, path), data)


def answer(received: bytes) -> bytes:
    """Return what the frames of stream 1 carry."""
    parts, position = [], 0
    while position + 9 <= len(received):
        size = int.from_bytes(received[position : position + 3], "big")
        if received[position + 3] == h2.DATA:
            parts.append(received[position + 9 : position + 9 + size])
        position += 9 + size
    return b"".join(parts)


@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize(
    "first", [WIDE, h2.PREFACE + h2.settings_frame({})], ids=["wide", "narrow"]
)
def test_who_does_not_read_a_large_answer_does_not_keep_its_memory(
    server: GrpcServerThread, first: bytes
) -> None:
    with server.connect(first) as connection:
        ask(connection)

        eventually(
            lambda: server.gateway.pending_tasks and server.gateway.pending_tasks[0].done(),
            within_s=20,
        )
        eventually(lambda: server.gateway.payload.watched() is None, within_s=20)

        if first == WIDE:
            assert DATA == answer(connection.read_until(b"grpc-status"))[-len(DATA) :]


@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize(
    "first", [WIDE, h2.PREFACE + h2.settings_frame({})], ids=["wide", "narrow"]
)
def test_a_large_answer_of_a_stream_is_let_go_whether_it_is_read_or_not(
    server: GrpcServerThread, first: bytes
) -> None:
    with server.connect(first) as connection:
        ask(connection, STREAM)

        if first == WIDE:
            assert DATA in answer(connection.read_until(DATA[-100:]))
        eventually(lambda: server.gateway.payload.watched() is None, within_s=20)


def _answers(**settings: Any) -> FakeGateway:
    """A gateway whose answers are large and lie in this process."""
    gateway = FakeGateway(version_info("m"), settings=settings)
    whole = Tensor("OUTPUT0", 11, [len(DATA) // 4], DATA)
    gateway.respond = lambda request: ResponseBody({}, [whole])
    return gateway


def test_who_never_reads_a_large_answer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_progress, "STALL_S", 0.2)
    monkeypatch.setattr(native_connection, "_LOOK_S", 0.05)
    with serving(_answers()) as server, server.connect(h2.PREFACE) as connection:
        connection.send(h2.settings_frame({}))
        ask(connection)

        connection.read_to_the_end()

        assert 0 == server.run_function(lambda: server.ledger.answers.held)


def test_answers_that_are_not_read_are_bounded_and_go_with_their_clients() -> None:
    with serving(_answers(client_memory_byte_size=20_000_000)) as server, ExitStack() as clients:
        unread = [clients.enter_context(server.connect()) for _ in range(2)]
        for connection in unread:
            ask(connection)
            connection.read_until(b"OUTPUT0")
        with server.connect(WIDE) as other:
            ask(other)
            assert b"grpc-status\x018" in other.read_until(b"grpc-message")
        for connection in unread:
            connection.close()
        eventually(lambda: not server.run_function(lambda: server.ledger.answers.held), 60)

        with server.connect(WIDE) as other:
            ask(other)
            assert DATA == answer(other.read_until(b"grpc-status"))[-len(DATA) :]


class Swallowing:
    """The transport of a client that reads whatever is written."""

    def __init__(self, descriptor: int) -> None:
        self.fileno = lambda: descriptor
        self.get_write_buffer_size = lambda: 0
        self.is_closing = lambda: False
        self.set_write_buffer_limits = lambda high, low: None
        self.write = lambda data: None

    def get_extra_info(self, name: str) -> Swallowing | None:
        return self if name == "socket" else None


@scenario(asyncio.run)
async def test_others_have_their_turn_amid_a_very_large_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inbox, "ROUND_S", 60.0)  # all that is said is read at once
    with open(os.devnull, "wb") as nowhere:
        http2 = ClientConnection(NativeServer(FakeGateway(), ()))
        http2.connection_made(Swallowing(nowhere.fileno()))
        for start in range(0, len(WIDE), 1000):
            part = WIDE[start : start + 1000]
            http2.get_buffer(-1)[: len(part)] = part
            http2.buffer_updated(len(part))
        # the stream has no request: it only sends
        connection = http2._http2
        stream = connection.streams[1] = Http2Stream(connection, 1)
        await asyncio.sleep(0)  # what was said so far is out

        connection.answer(stream, b"h", [memoryview(bytes(20 << 20))], b"t")
        left = [stream.outgoing_bytes]
        while stream.is_open:
            await asyncio.sleep(0)
            left.append(stream.outgoing_bytes)
            assert len(left) < 100

        assert max(before - after for before, after in pairwise(left)) <= 5 << 20
        http2.connection_lost(None)


def test_streams_that_are_only_opened_are_bounded_and_go_with_their_client() -> None:
    limit = 32 << 20
    with serving(_answers(client_memory_byte_size=limit)) as server:
        with server.connect() as greedy, server.connect(WIDE) as other:
            for start in range(1, 8001, 200):
                greedy.send(*(h2.headers_frame(n, INFER) for n in range(start, start + 200, 2)))
            greedy.read_until((7).to_bytes(4, "big"))

            assert limit // 4 < server.run_function(lambda: server.ledger.streams.held) < limit // 2
            ask(other)
            assert DATA == answer(other.read_until(b"grpc-status"))[-len(DATA) :]

        eventually(lambda: not server.run_function(lambda: server.ledger.streams.held), 60)


def test_headers_of_open_streams_have_room_from_the_first_on() -> None:
    fields = b"".join(b"\x00" + bytes((3, *b"%03d" % n, 0)) for n in range(100))
    block = h2.header_block(INFER) + fields
    with serving(_answers()) as server, server.connect(WIDE) as client:
        for number in range(1, 101, 2):
            client.send(h2.frame(h2.HEADERS, h2.END_HEADERS, number, block))

        least = 50 * (8 << 10) + 50 * 100 * 100
        eventually(lambda: server.run_function(lambda: server.ledger.streams.held) > least, 60)
        client.send(*(h2.reset_frame(number) for number in range(1, 101, 2)))
        eventually(lambda: server.run_function(lambda: server.ledger.streams.held) == 0, 60)


def test_headers_that_are_kept_have_room_and_go_with_their_client() -> None:
    path = "/a.B/C"  # which is refused at once
    fields = b"".join(b"\x00\x02%02d\x01x" % n for n in range(60))
    with serving(_answers()) as server:
        with server.connect(WIDE) as client:
            for number in range(1, 41, 2):
                block = h2.header_block(path + str(number)) + fields
                client.send(h2.frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, number, block))

            least = 20 * (60 * 3 + 60 * 64)
            eventually(lambda: server.run_function(lambda: server.ledger.streams.held) > least, 60)

        eventually(lambda: server.run_function(lambda: server.ledger.streams.held) == 0, 60)


def test_a_pause_before_a_small_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_progress, "PAUSE_S", 0.2)
    monkeypatch.setattr(native_connection, "_LOOK_S", 0.05)
    small, first = FakeGateway(version_info("m")), h2.PREFACE + h2.NO_WINDOW
    with serving(small) as server, server.connect(first) as connection:
        ask(connection)

        connection.read_to_the_end()


def test_a_call_whose_request_never_comes_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_progress, "STALL_S", 0.2)
    monkeypatch.setattr(native_connection, "_LOOK_S", 0.05)
    with serving(_answers()) as server, server.connect(WIDE) as connection:
        connection.send(h2.headers_frame(1, INFER))

        assert b"the request did not come" in connection.read_until(b"did not come")


# ------------------------------------------------------------------- slow readers


#: More data than there will be, so that the connection itself is what is slow.
WIDEST = h2.PREFACE + h2.settings_frame({4: 2**31 - 1})
WIDEST += h2.frame(h2.WINDOW, 0, 0, (1 << 30).to_bytes(4, "big"))
SLOW_SIZE = 4096
#: Less than the megabyte of which the kernel would be rid before it takes more, and more than what
#: lies between model and client: two batches of the stream, and the buffers of a narrow connection.
STEP_BYTES = 896 << 10


def ask_slowly(request_id: str) -> bytes:
    """Return a stream with one request."""
    return h2.headers_frame(1, STREAM) + h2.data_frame(1, written("d", request_id))


def test_a_little_that_is_read_of_a_flood_lets_the_model_go_on() -> None:
    gateway = FakeGateway(version_info("d", decoupled=True))
    streams = gateway.fake_streams
    streams.put("slow", *(item(b"x" * SLOW_SIZE) for _ in range(4000)))

    with (
        serving(gateway) as server,
        connect_narrow(server.port) as client,
    ):
        client.sendall(WIDEST + ask_slowly("slow"))

        def consumed(after: int = 0) -> int:
            return max(0, streams.consumed.get("slow", 0) - after)

        for _ in range(3):
            before = value_at_rest(consumed)
            read_some(client, STEP_BYTES)

            eventually(partial(consumed, before), 60, "more of the model")


def test_over_tls_a_little_that_is_not_read_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    pair, context = authority.issue("server"), ssl.create_default_context(cafile=authority.cert)
    context.set_alpn_protocols(["h2"])
    settings: dict[str, Any] = {"grpc_use_ssl": True, "grpc_use_ssl_mutual": False}
    settings |= {"grpc_server_cert": str(pair.cert), "grpc_server_key": str(pair.key)}
    gateway = FakeGateway(version_info("d", decoupled=True), settings=settings)
    streams, count = gateway.fake_streams, 4000

    async def put_one_by_one() -> None:
        for _ in range(count):
            streams.put("slow", item(b"x" * SLOW_SIZE))
            await asyncio.sleep(0)

    with serving(gateway) as server:
        client = context.wrap_socket(connect_narrow(server.port), server_hostname="127.0.0.1")
        with client:
            client.sendall(WIDEST + ask_slowly("slow"))
            server.run_coroutine(put_one_by_one())
            assert value_at_rest(lambda: streams.consumed.get("slow", 0)) < count

            read_some(client, count * SLOW_SIZE)

    assert count == streams.consumed["slow"]
    # what calls back from within what it calls ends in an error that the loop logs
    assert [] == [each.message for each in caplog.records if each.levelno >= logging.ERROR]
