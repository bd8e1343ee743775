"""Heads and bodies of requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from zmqtriton_frontends import http1
from zmqtriton_frontends.http1 import (
    MAX_BODY_BYTES,
    MAX_HEAD_BYTES,
    Refused,
    RequestReader,
)

# ---------------------------------------------------------------------------- requests
# Requests as they come: in pieces of any size, one after the other, and in chunks.


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
        while (body := reader.read()) is not None:
            assert reader.head is not None
            self._body += body
            if not reader.is_whole:
                return
            self.requests.append((reader.head.target, self._body))
            self._body = b""
            reader.head = None

    def take_in_pieces(self, data: bytes, size: int) -> None:
        for at in range(0, len(data), size):
            self.take(data[at : at + size])


def refusal(read: Callable[..., object], *arguments: Any) -> int:
    """Return the status with which reading is refused."""
    with pytest.raises(Refused) as refused:
        read(*arguments)
    return refused.value.status


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

    read.take_in_pieces(data, size)

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

    read.take_in_pieces(data, size)

    assert [(b"/c", b"abc")] == read.requests


@pytest.mark.parametrize("difference", [-len(CHUNKS), -1, 1])
@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.row("C34")
def test_chunks_that_end_elsewhere_than_their_length_are_refused(
    size: int, difference: int
) -> None:
    read, data = Read(), with_length(len(CHUNKS) + difference)

    assert (400, []) == (refusal(read.take_in_pieces, data, size), read.requests)


def test_a_body_may_be_received_elsewhere() -> None:
    reader = RequestReader()
    reader.held += START % b"a" + b"Content-Length: 1000\r\n\r\nabc"
    assert (b"abc", 997) == (reader.read(), reader.missing_bytes)

    reader.skip(990)
    reader.held += b"0123456" + REQUESTS[2]

    assert b"0123456" == reader.read()
    assert reader.is_whole
    reader.head = None
    reader.read()
    assert reader.head is not None
    assert (b"/b", False) == (reader.head.target, reader.head.expects_continue)


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
    assert status == refusal(Read().take, CHUNKED + chunks)


def test_what_is_kept_of_a_head_is_bounded() -> None:
    reader = RequestReader()
    reader.held += b"GET / HTTP/1.1\r\n"
    while len(reader.held) < MAX_HEAD_BYTES:
        assert reader.read() is None
        reader.held += b"X: " + b"y" * 7000 + b"\r\n"

    with pytest.raises(Refused):
        reader.read()


# ------------------------------------------------------------------------------- heads
# The meaning of heads, and refusals of malformed ones.


def head(*lines: bytes, first: bytes = b"POST /v2 HTTP/1.1", host: bytes = b"Host: x") -> bytes:
    return b"\r\n".join([first, *([host] if host else []), *lines, b"", b""])


@pytest.mark.row("C32")
def test_a_head_is_read() -> None:
    raw = head(b"X-Name:  some value\t", b"Content-Length: 7", first=b"PUT /a%20b?c=d HTTP/1.1")

    read = http1.read_head(raw)

    assert ("PUT", b"/a%20b?c=d", 1, 7) == (
        read.method,
        read.target,
        read.minor_version,
        read.body_bytes,
    )
    assert [(b"host", b"x"), (b"x-name", b"some value"), (b"content-length", b"7")] == read.fields
    spelled = [("Host", b"x"), ("X-Name", b"some value\t"), ("Content-Length", b"7")]
    assert spelled == list(read.spelled_fields())


@pytest.mark.row("C32")
def test_spelled_values_are_as_triton_reads_them() -> None:
    read = http1.read_head(head(b"a: \tb ", b"c:", b"d:  ", b"e:  f", b"E: g "))

    spelled = [("Host", b"x"), ("a", b"\tb "), ("c", b" "), ("d", b" "), ("E", b"f,g ")]
    assert spelled == list(read.spelled_fields())


@pytest.mark.parametrize(
    ("first", "fields", "keeps_alive"),
    [
        (b"GET / HTTP/1.1", [], True),
        (b"GET / HTTP/1.1", [b"Connection: Close"], False),
        (b"GET / HTTP/1.1", [b"Connection: x , close"], False),
        (b"GET / HTTP/1.1", [b"Connection: x", b"Connection: close"], False),
        (b"GET / HTTP/1.1", [b"Connection: closed"], True),
        (b"GET / HTTP/1.0", [], False),
        (b"GET / HTTP/1.0", [b"Connection: Keep-Alive"], True),
    ],
)
def test_a_client_says_whether_the_connection_goes_on(
    first: bytes, fields: list[bytes], keeps_alive: bool
) -> None:
    assert keeps_alive == http1.read_head(head(*fields, first=first)).keeps_alive


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"http://X/v2?a", b"/v2?a"),
        (b"HTTPS://x", b"/"),
        (b"http://x?a", b"/?a"),
        (b"/http://y/v2", b"/http://y/v2"),
    ],
)
def test_a_whole_uri_is_the_path_in_it(target: bytes, path: bytes) -> None:
    assert path == http1.read_head(head(first=b"GET " + target + b" HTTP/1.1")).target


REFUSED: dict[int, dict[str, bytes]] = {
    400: {
        "no method": head(first=b" /v2 HTTP/1.1"),
        "no target": head(first=b"GET  HTTP/1.1"),
        "another version": head(first=b"GET / HTTP/2.0"),
        "a tab": head(first=b"GET\t/ HTTP/1.1"),
        "a target with a letter beyond ASCII": head(first="GET /é HTTP/1.1".encode()),
        "another host in the target": head(first=b"GET http://y/ HTTP/1.1"),
        "a target that is no path": head(first=b"GET v2 HTTP/1.1"),
        "all of it": head(first=b"GET * HTTP/1.1"),
        "no host": head(host=b""),
        "an odd host": head(host=b"Host: a b"),
        "a host that is a path": head(host=b"Host: a/b"),
        "two hosts": head(b"host: x"),
        "a folded line": head(b"X: y", b" z"),
        "a space before the colon": head(b"X : y"),
        "a line feed alone": head(b"X: y\nZ: 1"),
        "a return alone": head(b"X: y\rZ: 1"),
        "a zero": head(b"X: a\0"),
        "two lengths": head(b"Content-Length: 1", b"Content-Length: 1"),
        "a list of lengths": head(b"Content-Length: 1, 1"),
        "a length and chunks": head(b"Content-Length: 1", b"Transfer-Encoding: chunked"),
        "a length of nothing and chunks": head(b"Transfer-Encoding: chunked", b"Content-Length: 0"),
        "no length and compressed chunks": head(
            b"Content-Length: x", b"Transfer-Encoding: chunked", b"Content-Encoding: gzip"
        ),
        "chunks twice": head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
        "chunks before HTTP/1.1": head(b"Transfer-Encoding: chunked", first=b"POST / HTTP/1.0"),
    },
    505: {"HTTP/2 with prior knowledge": head(first=b"PRI * HTTP/2.0", host=b"")},
    413: {
        "a length beyond the limit": head(b"Content-Length: %d" % (MAX_BODY_BYTES + 1)),
        "a length beyond 64 bits": head(b"Content-Length: %d" % 10**26),
        "a length of 5,000 digits": head(b"Content-Length: " + b"9" * 5000),
    },
    414: {"a long target": head(first=b"GET /" + b"a" * 8192 + b" HTTP/1.1")},
    431: {
        "a long field": head(b"X: " + b"y" * 8192),
        "many fields": head(*[b"X: y"] * 100),
    },
    501: {
        "something packed in chunks": head(b"Transfer-Encoding: gzip, chunked"),
        "nothing in chunks": head(b"Transfer-Encoding: identity, chunked"),
        "chunks in chunks": head(b"Transfer-Encoding: chunked, chunked"),
        "an unknown coding": head(b"Transfer-Encoding: xchunked"),
    },
}


@pytest.mark.parametrize(
    ("status", "raw"),
    [(status, raw) for status, group in REFUSED.items() for raw in group.values()],
    ids=[name for group in REFUSED.values() for name in group],
)
@pytest.mark.row("C34")
def test_what_could_be_read_in_two_ways_is_refused(status: int, raw: bytes) -> None:
    assert status == refusal(http1.read_head, raw)


@pytest.mark.parametrize(
    ("begun", "status"),
    [
        (b"\x16\x03\x01", 400),
        (b"GET /" + b"a" * 8192, 414),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000, 431),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * 9000, 431),
    ],
)
def test_what_cannot_become_a_head_is_refused_before_it_ends(begun: bytes, status: int) -> None:
    assert status == refusal(http1.check_beginning, begun)


def test_what_may_become_a_head_is_waited_for() -> None:
    raw = head(*[b"X: " + b"y" * 80] * 90)

    for size in range(1, len(raw) - 1):
        http1.check_beginning(raw[:size])
