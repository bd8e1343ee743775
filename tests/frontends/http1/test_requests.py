"""Requests as they come: in pieces of any size, one after the other, and in chunks."""

from __future__ import annotations

import random
from collections import deque

import pytest

from zmqtriton_frontends.http1.heads import MAX_BODY_BYTES, MAX_HEAD_BYTES, Refused
from zmqtriton_frontends.http1.requests import RequestReader

START = b"POST /%s HTTP/1.1\r\nHost: x\r\n"
CHUNKED = START % b"c" + b"Transfer-Encoding: chunked\r\n\r\n"


class Read:
    """All requests that a reader finds."""

    def __init__(self) -> None:
        self.reader = RequestReader()
        self.requests: list[tuple[bytes, bytes]] = []
        self._body = b""

    def take(self, data: bytes) -> None:
        reader = self.reader
        reader.held += data
        while reader.head is not None or reader.read_head() is not None:
            assert reader.head is not None
            self._body += reader.read_body()
            if not reader.is_whole:
                return
            self.requests.append((reader.head.target, self._body))
            self._body = b""
            reader.end()


REQUESTS = (
    START % b"a" + b"Content-Length: 3\r\n\r\nabc",
    CHUNKED + b"3\r\nabc\r\n0A ; x=y; z=\"\\\"\"\r\n0123456789\r\n0\r\n\r\n",
    START % b"b" + b"\r\n",
    b"\r\n" + START % b"d" + b"\r\n",
    CHUNKED + b"0000\r\nX-Sum: 1\r\nY: 2\r\n\r\n",
)  # fmt: skip
FOUND = [
    (b"/a", b"abc"),
    (b"/c", b"abc0123456789"),
    (b"/b", b""),
    (b"/d", b""),
    (b"/c", b""),
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 1000])
@pytest.mark.row("C34")
def test_requests_are_found_however_they_come(size: int) -> None:
    read, data = Read(), b"".join(REQUESTS) * 3

    for at in range(0, len(data), size):
        read.take(data[at : at + size])

    assert FOUND * 3 == read.requests
    assert (b"", None) == (read.reader.held, read.reader.head)


CHUNKS = b"3\r\nabc\r\n0\r\n\r\n"


def with_length(size: int) -> bytes:
    fields = b"Transfer-Encoding: chunked\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    return START % b"c" + fields % size + CHUNKS


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.row("C34")
def test_compressed_chunks_may_say_their_length(size: int) -> None:
    read, data = Read(), with_length(len(CHUNKS))

    for at in range(0, len(data), size):
        read.take(data[at : at + size])

    assert [(b"/c", b"abc")] == read.requests


@pytest.mark.parametrize("difference", [-len(CHUNKS), -1, 1])
@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.row("C34")
def test_chunks_that_end_elsewhere_than_their_length_are_refused(
    size: int, difference: int
) -> None:
    read, data = Read(), with_length(len(CHUNKS) + difference)
    pieces = [data[at : at + size] for at in range(0, len(data), size)]

    with pytest.raises(Refused) as refused:
        deque(map(read.take, pieces), maxlen=0)

    assert ([], 400) == (read.requests, refused.value.status)


def test_requests_are_found_in_pieces_of_any_size() -> None:
    dice = random.Random(1)
    for _ in range(100):
        read, data = Read(), b"".join(REQUESTS)
        while data:
            size = dice.randint(1, 60)
            read.take(data[:size])
            data = data[size:]

        assert FOUND == read.requests


def test_nothing_of_the_next_request_is_read_before_the_first_is_answered() -> None:
    reader = RequestReader()
    reader.held += b"".join(REQUESTS)
    reader.read_head()

    assert b"abc" == reader.read_body()

    assert reader.is_whole
    assert b"" == reader.read_body()
    assert b"".join(REQUESTS[1:]) == reader.held


def test_a_body_may_be_received_elsewhere() -> None:
    reader = RequestReader()
    reader.held += START % b"a" + b"Content-Length: 1000\r\n\r\nabc"
    reader.read_head()
    assert (b"abc", 997) == (reader.read_body(), reader.missing_bytes)

    reader.skip(990)
    reader.held += b"0123456" + REQUESTS[2]

    assert b"0123456" == reader.read_body()
    assert reader.is_whole
    reader.end()
    head = reader.read_head()
    assert head is not None
    assert b"/b" == head.target


@pytest.mark.parametrize(
    ("chunks", "status"),
    [
        (b"g\r\n", 400),
        (b"0x5\r\naaaaa\r\n", 400),
        (b"-1\r\n", 400),
        (b" 5\r\naaaaa\r\n", 400),
        (b"\r\n", 400),
        (b"5;e\rx\r\naaaaa\r\n", 400),
        (b"5;\r\naaaaa\r\n", 400),
        (b"5\naaaaa\r\n", 400),
        (b"1\r\naXX", 400),
        (b"1\r\na\n", 400),
        (b"1" * 300, 400),
        (b"1;" + b"a" * 300 + b"\r\n", 400),
        (b"fffffffff\r\n", 413),
        (b"11111111111111111\r\n", 413),
        (b"%x\r\n" % (MAX_BODY_BYTES + 1), 413),
        (b"0\r\nContent-Length: 5\r\n\r\n", 400),
        (b"0\r\nX : 5\r\n\r\n", 400),
        (b"0\r\n" + b"X: y\r\n" * 2000 + b"\r\n", 431),
        (b"0\r\nX: " + b"y" * 9000, 431),
        (b"1\r\na\r\n" * 70_000, 400),
    ],
)
@pytest.mark.row("C34")
def test_malformed_chunks_are_refused(chunks: bytes, status: int) -> None:
    with pytest.raises(Refused) as refused:
        Read().take(CHUNKED + chunks)

    assert status == refused.value.status


def test_chunks_may_be_many_if_they_are_not_tiny() -> None:
    read = Read()
    read.take(CHUNKED)
    for _ in range(70):
        read.take((b"200\r\n" + bytes(512) + b"\r\n") * 1000)
    read.take(b"0\r\n\r\n")

    assert [512 * 70_000] == [len(body) for _, body in read.requests]


def test_what_is_kept_of_a_head_is_bounded() -> None:
    reader = RequestReader()
    reader.held += b"GET / HTTP/1.1\r\n"
    while len(reader.held) < MAX_HEAD_BYTES:
        assert reader.read_head() is None
        reader.held += b"X: " + b"y" * 7000 + b"\r\n"

    with pytest.raises(Refused):
        reader.read_head()
