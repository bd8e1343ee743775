"""Messages in frames, and compressed ones."""

from __future__ import annotations

import asyncio
import random
import struct
import weakref
import zlib
from mmap import mmap
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.frontends.fake_gateway import version_info
from tests.frontends.grpc_api.fake_gateway import INFER, STREAM, FakeGateway
from tests.frontends.grpc_api.serving import GrpcServerThread, serving
from tests.support import raw_http2 as h2
from tests.support.shares import share_of
from tests.support.waiting import eventually
from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.token_file import Grant
from zmqtriton_frontends.grpc_api.call import NoRequestRoomError
from zmqtriton_frontends.grpc_api.transport.message_framing import (
    Assembly,
    Message,
    MessageTooLargeError,
    Unfinished,
    inflate,
    prefix,
)
from zmqtriton_frontends.process import codecs
from zmqtriton_frontends.process.codecs import deflate
from zmqtriton_frontends.process.ledger import Book

pytestmark = pytest.mark.slow


# --------------------------------------------------------------------- message framing


@pytest.mark.parametrize("seed", range(10))
def test_messages_are_the_same_however_they_are_cut(seed: int) -> None:
    rng = random.Random(seed)
    sent = [(rng.random() < 0.5, rng.randbytes(rng.choice((0, 0, 1, 7, 300)))) for _ in range(50)]
    whole = b"".join(prefix(c, len(m)) + m for c, m in sent)
    assembly = Assembly(Unfinished(share_of(Book(2 << 30))))
    got: list[tuple[bool, Message]] = []

    while whole:
        size = rng.choice((1, 2, 5, 50, 700))
        got += assembly.feed(memoryview(whole[:size]))
        whole = whole[size:]

    assert sent == [(c, bytes(m)) for c, m in got]
    assert not assembly.is_amid


@pytest.mark.parametrize(
    "part", [prefix(False, 5)[:3], prefix(False, 5), prefix(False, 5) + b"hell"]
)
def test_what_is_cut_off_is_known(part: bytes) -> None:
    assembly = Assembly(Unfinished(share_of(Book(2 << 30))))

    assert [] == assembly.feed(memoryview(part))

    assert assembly.is_amid


def test_a_message_over_the_limit_is_refused_by_its_prefix() -> None:
    assert [] == Assembly(Unfinished(share_of(Book(2 << 30)))).feed(
        memoryview(prefix(False, 2**31 - 1))
    )
    with pytest.raises(MessageTooLargeError, match=r"2147483648 vs\. 2147483647"):
        Assembly(Unfinished(share_of(Book(2 << 30)))).feed(memoryview(prefix(False, 2**31)))


def test_a_flag_that_means_nothing_is_refused() -> None:
    with pytest.raises(InternalError):
        Assembly(Unfinished(share_of(Book(2 << 30)))).feed(memoryview(b"\x02\0\0\0\0"))


def inflated(data: bytes, encoding: str, limit: int = 1 << 30) -> Any:
    book = Book(limit)
    unfinished, held = Unfinished(share_of(book)), share_of(book)
    whole = asyncio.run(inflate(data, encoding, unfinished, held, unfinished))
    assert len(whole) == held.held == book.held
    return whole


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_what_is_deflated_can_be_inflated(encoding: str) -> None:
    data = b"data" * 1000

    packed = deflate([data], encoding)

    assert len(packed) < 100
    assert data == inflated(packed, encoding)


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (b"plain", "gzip"),
        (zlib.compress(b"cut")[:-1], "deflate"),
        (zlib.compress(b"more") + b"more", "deflate"),
        (b"anything", "identity"),
    ],
)
def test_what_is_not_compressed_as_it_says_is_refused(data: bytes, encoding: str) -> None:
    with pytest.raises(InternalError):
        inflated(data, encoding)


def test_what_is_not_whole_is_bounded_over_all_clients() -> None:
    book = Book(1000)
    first, second = (Assembly(Unfinished(share_of(book))) for _ in range(2))
    first.feed(memoryview(prefix(False, 600) + bytes(500)))
    second.feed(memoryview(prefix(False, 600) + bytes(450)))

    with pytest.raises(NoRequestRoomError):
        second.feed(memoryview(bytes(60)))
    second.drop()
    assert 500 == book.held
    assert [(False, bytes(600))] == first.feed(memoryview(bytes(100)))

    assert 0 == book.held
    first.feed(memoryview(prefix(False, 600) + bytes(100)))
    assert 100 == book.held


# ----------------------------------------------------------------- compressed messages
# Compressed messages of our own transport: what is inflated has room, and goes with it.


LIMIT = 32 << 20


ENCODING = b"\x00\x0dgrpc-encoding\x04gzip"


class Inflated(mmap):
    """The memory of a message that can be watched."""

    all: ClassVar[list[weakref.ref[Inflated]]] = []

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()
        self.all.append(weakref.ref(self))

    @classmethod
    def is_any_left(cls) -> bool:
        return any(not (one is None or one.closed) for one in (ref() for ref in cls.all))


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> FakeGateway:
    monkeypatch.setattr(codecs, "mmap", Inflated)
    Inflated.all.clear()
    return FakeGateway(version_info("m"), settings={"client_memory_byte_size": LIMIT})


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
    eventually(lambda: not Inflated.is_any_left(), 60, "nothing is kept")


@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize("path", [INFER, STREAM], ids=["unary", "stream"])
def test_who_leaves_leaves_nothing_that_was_inflated(server: GrpcServerThread, path: str) -> None:
    with h2.Connection(server.port) as client:
        client.send(begin(path), packed(LIMIT // 2))
        eventually(lambda: Inflated.all, 60, "something is inflated")

    eventually(lambda: not Inflated.is_any_left(), 60, "nothing is kept")
    eventually(lambda: server.run_function(lambda: server.ledger.requests.held) == 0, 60)


def test_a_message_is_inflated_for_who_may_ask(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"somebody sha256:{Grant.digest_of('secret').hex()}\n")
    tokens.chmod(0o600)
    gateway = FakeGateway(version_info("m"), settings={"tokens": str(tokens)})
    broken = struct.pack(">BI", 1, 5) + b"wrong"
    with serving(gateway) as server, h2.Connection(server.port) as client:
        client.send(begin(INFER), h2.frame(h2.DATA, h2.END_STREAM, 1, broken))

        assert b"grpc-status\x0216" in client.read_until(b"grpc-message")
