from __future__ import annotations

import asyncio
import random
import zlib
from typing import Any

import pytest

from zmqtriton_floor.errors import InternalError
from zmqtriton_frontends.grpc_api.transport.message_framing import (
    Assembly,
    Message,
    TooLargeError,
    Unfinished,
    inflate,
    prefix,
)
from zmqtriton_frontends.process.codecs import deflate
from zmqtriton_frontends.process.ledger import Book, Share

pytestmark = pytest.mark.slow


def test_a_message_in_one_piece_is_there_at_once() -> None:
    messages = Assembly(Unfinished(Share(Book(2 << 30)))).feed(
        memoryview(prefix(False, 5) + b"hello")
    )

    assert [(False, b"hello")] == messages


@pytest.mark.parametrize("seed", range(10))
def test_messages_are_the_same_however_they_are_cut(seed: int) -> None:
    rng = random.Random(seed)
    sent = [(rng.random() < 0.5, rng.randbytes(rng.choice((0, 0, 1, 7, 300)))) for _ in range(50)]
    whole = b"".join(prefix(c, len(m)) + m for c, m in sent)
    assembly = Assembly(Unfinished(Share(Book(2 << 30))))
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
    assembly = Assembly(Unfinished(Share(Book(2 << 30))))

    assert [] == assembly.feed(memoryview(part))

    assert assembly.is_amid


def test_a_message_over_the_limit_is_refused_by_its_prefix() -> None:
    assert [] == Assembly(Unfinished(Share(Book(2 << 30)))).feed(
        memoryview(prefix(False, 2**31 - 1))
    )
    with pytest.raises(TooLargeError, match=r"2147483648 vs\. 2147483647"):
        Assembly(Unfinished(Share(Book(2 << 30)))).feed(memoryview(prefix(False, 2**31)))


def test_a_flag_that_means_nothing_is_refused() -> None:
    with pytest.raises(InternalError):
        Assembly(Unfinished(Share(Book(2 << 30)))).feed(memoryview(b"\x02\0\0\0\0"))


def inflated(data: bytes, encoding: str, limit: int = 1 << 30) -> Any:
    book = Book(limit)
    unfinished, held = Unfinished(Share(book)), Share(book)
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
    first, second = (Assembly(Unfinished(Share(book))) for _ in range(2))
    first.feed(memoryview(prefix(False, 600) + bytes(500)))
    second.feed(memoryview(prefix(False, 600) + bytes(450)))

    with pytest.raises(TooLargeError):
        second.feed(memoryview(bytes(60)))
    second.drop()
    assert 500 == book.held
    assert [(False, bytes(600))] == first.feed(memoryview(bytes(100)))

    assert 0 == book.held
    assert [(False, bytes(5000))] == second.feed(memoryview(prefix(False, 5000) + bytes(5000)))
