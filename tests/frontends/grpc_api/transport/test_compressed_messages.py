"""Compressed messages of our own transport: what is inflated has room, and goes with it."""

from __future__ import annotations

import gc
import struct
import weakref
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from tests.frontends.grpc_api.fake_gateway import FakeGateway, version_info
from tests.frontends.grpc_api.serving import GrpcServerThread, serving
from tests.support import raw_http2 as h2
from tests.support.waiting import eventually
from zmqtriton_floor.access.token_file import digest
from zmqtriton_frontends.process import inflating

pytestmark = pytest.mark.slow

INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
LIMIT = 32 << 20
ENCODING = b"\x00\x0dgrpc-encoding\x04gzip"


class Inflated(bytearray):
    """A message that can be watched."""

    all: ClassVar[list[weakref.ref[Inflated]]] = []

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.all.append(weakref.ref(self))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[GrpcServerThread]:
    monkeypatch.setattr(inflating, "bytearray", Inflated, raising=False)
    Inflated.all.clear()
    gateway = FakeGateway(version_info("m"), settings={"client_memory_byte_size": LIMIT})
    with serving(gateway) as running:
        yield running


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    """Keep what refers to itself, as for long in a process that has much to do."""
    gc.disable()
    yield
    gc.enable()


def packed(size: int) -> bytes:
    """Return frames with a message that means nothing."""
    stream = zlib.compressobj(9, zlib.DEFLATED, 31)
    data = stream.compress(bytes(size)) + stream.flush()
    whole = struct.pack(">BI", 1, len(data)) + data
    parts = [whole[at : at + 16_000] for at in range(0, len(whole), 16_000)]
    return b"".join(h2.frame(h2.DATA, 0, 1, part) for part in parts)


def begin(path: str) -> bytes:
    return h2.frame(h2.HEADERS, h2.END_HEADERS, 1, h2.header_block(path) + ENCODING)


@pytest.mark.parametrize("path", [INFER, STREAM], ids=["unary", "stream"])
def test_messages_of_many_clients_have_room_before_they_are_inflated(
    server: GrpcServerThread, path: str
) -> None:
    with h2.Connection(server.port) as client:
        client.send(begin(path), packed(3 * LIMIT // 2), h2.frame(h2.DATA, h2.END_STREAM, 1))

        assert b"grpc-status\x018" in client.read_until(b"grpc-message")
        eventually(lambda: server.run_function(lambda: server.ledger.requests.held) == 0, 60)


@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize("path", [INFER, STREAM], ids=["unary", "stream"])
@pytest.mark.parametrize("size", [LIMIT // 2, 3 * LIMIT // 2], ids=["wrong", "too large"])
def test_what_was_inflated_is_forgotten_with_its_room(
    server: GrpcServerThread, path: str, size: int
) -> None:
    with h2.Connection(server.port) as client:
        client.send(begin(path), packed(size), h2.frame(h2.DATA, h2.END_STREAM, 1))
        client.read_until(b"grpc-status")

    assert Inflated.all
    eventually(lambda: not any(one() for one in Inflated.all), 60, "nothing is kept")


@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize("path", [INFER, STREAM], ids=["unary", "stream"])
def test_who_leaves_leaves_nothing_that_was_inflated(server: GrpcServerThread, path: str) -> None:
    with h2.Connection(server.port) as client:
        client.send(begin(path), packed(LIMIT // 2))
        eventually(lambda: Inflated.all, 60, "something is inflated")

    eventually(lambda: not any(one() for one in Inflated.all), 60, "nothing is kept")
    eventually(lambda: server.run_function(lambda: server.ledger.requests.held) == 0, 60)


def test_a_message_is_inflated_for_who_may_ask(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"somebody sha256:{digest('secret').hex()}\n")
    tokens.chmod(0o600)
    gateway = FakeGateway(version_info("m"), settings={"tokens": str(tokens)})
    broken = struct.pack(">BI", 1, 5) + b"wrong"
    with serving(gateway) as server, h2.Connection(server.port) as client:
        client.send(begin(INFER), h2.frame(h2.DATA, h2.END_STREAM, 1, broken))

        unauthenticated = b"grpc-status\x0216"
        assert unauthenticated in client.read_until(b"grpc-message")
