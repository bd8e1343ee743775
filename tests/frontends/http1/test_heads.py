"""The meaning of heads, and refusals of malformed ones."""

from __future__ import annotations

import pytest

from zmqtriton_frontends.http1 import heads
from zmqtriton_frontends.http1.heads import MAX_BODY_BYTES, Refused


def head(*lines: bytes, first: bytes = b"POST /v2 HTTP/1.1", host: bytes = b"Host: x") -> bytes:
    return b"\r\n".join([first, *([host] if host else []), *lines, b"", b""])


@pytest.mark.row("C32")
def test_a_head_is_read() -> None:
    raw = head(b"X-Name:  some value\t", b"Content-Length: 7", first=b"PUT /a%20b?c=d HTTP/1.1")

    read = heads.read(raw)

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
    read = heads.read(head(b"a: \tb ", b"c:", b"d:  ", b"e:  f", b"E: g "))

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
    assert keeps_alive == heads.read(head(*fields, first=first)).keeps_alive


@pytest.mark.parametrize(
    ("fields", "size"),
    [
        ([], 0),
        ([b"Content-Length: 0"], 0),
        ([b"Content-Length: 00012"], 12),
        ([b"Content-Length: " + b"0" * 5000 + b"12"], 12),
        ([b"Content-Length: %d" % MAX_BODY_BYTES], MAX_BODY_BYTES),
        ([b"Transfer-Encoding: CHUNKED"], None),
    ],
)
def test_a_head_says_how_long_its_body_is(fields: list[bytes], size: int | None) -> None:
    assert size == heads.read(head(*fields)).body_bytes


def test_compressed_chunks_with_a_length_end_the_connection() -> None:
    fields = (b"Transfer-Encoding: chunked", b"Content-Length: 9", b"Connection: keep-alive")

    read = heads.read(head(*fields, b"Content-Encoding: gzip"))

    assert (None, 9, False) == (read.body_bytes, read.chunked_bytes, read.keeps_alive)


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
    assert path == heads.read(head(first=b"GET " + target + b" HTTP/1.1")).target


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
    with pytest.raises(Refused) as refused:
        heads.read(raw)

    assert status == refused.value.status


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
    with pytest.raises(Refused) as refused:
        heads.check_beginning(begun)

    assert status == refused.value.status


def test_what_may_become_a_head_is_waited_for() -> None:
    raw = head(*[b"X: " + b"y" * 80] * 90)

    for size in range(1, len(raw) - 1):
        heads.check_beginning(raw[:size])
