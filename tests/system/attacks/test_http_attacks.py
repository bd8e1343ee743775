"""Hostile HTTP clients: refused, bounded, and no other client's trouble."""

from __future__ import annotations

import gzip
import json
import socket
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.journal import executions
from tests.support.raw_http import RawResponse, raw_request, send_raw
from tests.support.server import Server

pytestmark = pytest.mark.system

FRONTENDS = ()

INFER = "/v2/models/identity_fp32/infer"
LIMIT = 1 << 20
ONE = {"name": "INPUT0", "shape": [1], "datatype": "FP32", "data": [1.0]}
#: A request behind one that is framed in two ways; nobody may answer it.
SMUGGLED = b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n"


MODELS = ("identity_fp32", "journal")
OPTIONS = (f"--http-max-input-size={LIMIT}", "--model-control-mode=explicit", "--load-model=*")


@pytest.fixture
def server(server: Server) -> Iterator[Server]:
    """After each attack others are served, too."""
    yield server
    assert 200 == _infer(server, {"inputs": [ONE]}).statuses[0]


def _ask(server: Server, path: str, body: bytes, **headers: str) -> RawResponse:
    return send_raw(
        server.http_port, raw_request("POST", path, body, Connection="close", **headers)
    )


def _infer(server: Server, document: Any, **headers: str) -> RawResponse:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return _ask(server, INFER, body, **headers)


def _peak_mib(server: Server) -> int:
    """The most memory that the process for HTTP had."""
    peaks = []
    for pid in server.pids()["http"]:
        status = Path(f"/proc/{pid}/status").read_text()
        peaks.append(int(status.split("VmHWM:")[1].split()[0]) >> 10)
    return max(peaks)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (INFER, 400),
        ("/v2/repository/index", 400),
        ("/v2/logging", 400),
        ("/v2/health/live", 405),
        ("/nowhere", 404),
    ],
)
@pytest.mark.row("C34")
def test_very_many_chunks_end_the_request(server: Server, path: str, status: int) -> None:
    chunks = b"1\r\nA\r\n" * 70_000 + b"0\r\n\r\n"

    got = _ask(server, path, chunks, Transfer_Encoding="chunked")

    assert ([status], True) == (got.statuses, got.is_closed)


FRAMINGS: dict[str, tuple[bytes, bytes]] = {
    "length and chunks": (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
    "length of compressed chunks": (
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n",
        b"0\r\n\r\n",
    ),
    "two lengths": (b"Content-Length: 5\r\nContent-Length: 6\r\n", b"aaaaa"),
    "a length twice": (b"Content-Length: 5\r\nContent-Length: 5\r\n", b"aaaaa"),
    "a length with a sign": (b"Content-Length: +5\r\n", b"aaaaa"),
    "lengths in a list": (b"Content-Length: 5,5\r\n", b"aaaaa"),
    "chunks and more": (b"Transfer-Encoding: chunked, identity\r\n", b"0\r\n\r\n"),
    "chunks with a letter": (b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n"),
    "chunks with a tab": (b"Transfer-Encoding: chunked\x0b\r\n", b"0\r\n\r\n"),
    "chunks twice": (b"Transfer-Encoding: chunked\r\n" * 2, b"0\r\n\r\n"),
    "a chunk in C": (b"Transfer-Encoding: chunked\r\n", b"0x5\r\naaaaa\r\n0\r\n\r\n"),
    "a chunk below zero": (b"Transfer-Encoding: chunked\r\n", b"-1\r\n\r\n"),
    "a chunk beyond 64 bits": (b"Transfer-Encoding: chunked\r\n", b"11111111111111111\r\n"),
    "a chunk with a line": (b"Transfer-Encoding: chunked\r\n", b"5;e\rx\r\naaaaa\r\n0\r\n\r\n"),
    "a line that ends early": (b"X: y\nContent-Length: 0\r\n", b""),
    "a line in a value": (b"X: y\rz\r\nContent-Length: 0\r\n", b""),
    "a folded line": (b"X: y\r\n z\r\nContent-Length: 0\r\n", b""),
    "a space before the colon": (b"Content-Length : 0\r\n", b""),
}


def test_a_body_that_could_end_in_two_places_ends_the_connection(server: Server) -> None:
    for framing, (headers, body) in FRAMINGS.items():
        head = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\n".encode() + headers + b"\r\n"

        got = send_raw(server.http_port, head + body + SMUGGLED)

        assert got.is_closed, framing
        assert got.statuses in ([400], [413], [501]), framing


def test_chunks_that_a_client_has_made_itself_are_read_and_nothing_behind_them(
    server: Server,
) -> None:
    """As `requests` sends a body of bytes with a Transfer-Encoding: with its length, too."""
    packed = gzip.compress(json.dumps({"inputs": [ONE]}).encode())
    chunks = b"%X\r\n%s\r\n0\r\n\r\n" % (len(packed), packed)
    head = (
        f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\n"
        f"Transfer-Encoding: chunked\r\nContent-Length: {len(chunks)}\r\n\r\n"
    )

    got = send_raw(server.http_port, head.encode() + chunks + SMUGGLED)

    assert ([200], True) == (got.statuses, got.is_closed)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (raw_request("GET", "/v2", X="a" * LIMIT), 431),
        (b"GET /v2 HTTP/1.1\r\n" + b"X: a\r\n" * 100_000 + b"\r\n", 431),
        (raw_request("GET", "/" + "a" * LIMIT), 414),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9), 400),
    ],
    ids=["a long header", "many headers", "a long path", "another protocol"],
)
def test_headers_are_bounded(server: Server, data: bytes, status: int) -> None:
    got = send_raw(server.http_port, data)

    assert ([status], True) == (got.statuses, got.is_closed)


def test_who_asks_for_another_protocol_gets_this_one(server: Server) -> None:
    websocket = {
        "Upgrade": "websocket",
        "Sec_WebSocket_Version": "13",
        "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    upgrade = raw_request("GET", "/v2", b"", Connection="Upgrade", **websocket)
    last = raw_request("GET", "/v2", Connection="close")

    assert [200, 200] == send_raw(server.http_port, upgrade + last).statuses


@pytest.mark.parametrize(("coding", "bits"), [("gzip", 31), ("deflate", 15)])
@pytest.mark.row("C30", "C31")
def test_what_is_inflated_stops_at_the_limit(server: Server, coding: str, bits: int) -> None:
    stream = zlib.compressobj(9, zlib.DEFLATED, bits)
    bomb = b"".join(stream.compress(bytes(1 << 20)) for _ in range(256)) + stream.flush()
    assert 200 == _infer(server, {"inputs": [ONE]}).statuses[0]
    before = _peak_mib(server)

    got = _infer(server, bomb, Content_Encoding=coding)

    assert [400] == got.statuses
    text = f"decompressed request size exceeds the maximum allowed input size of {LIMIT} bytes. "
    assert text.encode() in got.data
    assert _peak_mib(server) < before + 32


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        (INFER, b'{"inputs":[{"data":', b"}]}"),
        (INFER, b'{"parameters":{"x":', b"}}"),
        ("/v2/models/identity_fp32/generate", b'{"INPUT0":', b"}"),
        ("/v2/repository/index", b'{"ready":', b"}"),
        ("/v2/repository/models/identity_fp32/load", b'{"parameters":{"config":', b"}}"),
        ("/v2/logging", b'{"log_info":', b"}"),
    ],
)
@pytest.mark.row("C22")
def test_json_may_not_nest_without_end(
    server: Server, path: str, before: bytes, after: bytes
) -> None:
    for depth in (101, 250_000):
        got = _ask(server, path, before + b"[" * depth + b"]" * depth + after)

        assert [400] == got.statuses
        assert b"JSON nesting depth exceeds maximum allowed limit (100)" in got.data


LENGTHS = (
    "99999999999",
    "-1",
    "+5",
    "1_0",
    "\u0663".encode().decode("latin-1"),
    "0x10",
    "1e3",
    "",
    "9" * 5000,
    "4, 4",
    "1.5",
)


@pytest.mark.row("C23")
def test_a_length_of_the_json_is_a_number_within_the_body(server: Server) -> None:
    body = json.dumps({"inputs": [ONE]}).encode()
    for length in LENGTHS:
        head = f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        head += f"Inference-Header-Content-Length: {length}\r\nContent-Length: {len(body)}\r\n\r\n"

        assert [400] == send_raw(server.http_port, head.encode("latin-1") + body).statuses, length


#: What is changed in a good request, and the answer.
EXCESSES: tuple[tuple[dict[str, Any], str], ...] = (
    ({"outputs": [{"name": "OUTPUT0"}] * 30_000}, "more than 1024 inputs and outputs"),
    ({"outputs": [{"name": "OUTPUT0"}] * 2}, "output 'OUTPUT0' already exists in request"),
    ({"inputs": [ONE] * 2}, "input 'INPUT0' already exists in request"),
    ({"parameters": {str(n): 1 for n in range(50_000)}}, "more than 1024 parameters"),
    ({"parameters": {"x" * 2000: 1}}, "longer than 1024 characters"),
    ({"parameters": {"priority": 2**64}}, "Unable to parse 'priority'"),
    ({"parameters": {"timeout": -1}}, "Unable to parse 'timeout'"),
    ({"parameters": {"sequence_id": "a" * 5000}}, "longer than 128 characters"),
    ({"inputs": [{**ONE, "shape": [2**31, 2**31]}]}, "Shape does not match"),
    ({"inputs": [{**ONE, "shape": [1] * 10_000}]}, "more than 32 dimensions"),
    ({"inputs": [{**ONE, "name": "x" * 100_000}]}, "longer than 1024 characters"),
)


@pytest.mark.row("C49")
def test_what_is_too_much_is_refused(server: Server) -> None:
    for change, text in EXCESSES:
        got = _infer(server, {"inputs": [ONE], **change})

        assert [400] == got.statuses, text
        assert text.encode() in got.data


@pytest.mark.parametrize("is_half_closed", [True, False], ids=["half closed", "gone"])
@pytest.mark.row("C33")
def test_half_a_body_is_never_executed(server: Server, is_half_closed: bool) -> None:
    name = f"half {is_half_closed}"
    inputs = [
        {"name": "ID", "shape": [1, 1], "datatype": "BYTES", "data": [name]},
        {"name": "MS", "shape": [1, 1], "datatype": "INT32", "data": [0]},
    ]
    text = json.dumps({"inputs": inputs}).encode()
    length = str(len(text) + 100)
    half = raw_request("POST", "/v2/models/journal/infer", text, Content_Length=length)

    if is_half_closed:
        send_raw(server.http_port, half, 5, is_half_closed=True)
    else:
        with socket.create_connection(("127.0.0.1", server.http_port)) as connection:
            connection.sendall(half)
    body = json.dumps({"inputs": [{**inputs[0], "data": ["whole"]}, inputs[1]]}).encode()
    whole = _ask(server, "/v2/models/journal/infer", body)

    assert [200] == whole.statuses
    assert "whole" in executions(server.journal)
    assert name not in executions(server.journal)


@pytest.mark.row("C34")
def test_a_client_that_sends_on_without_reading_fills_nothing(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.http_port)) as connection:
        before = _peak_mib(server)
        connection.settimeout(2)
        sent = 0
        many = raw_request("GET", "/v2/models/identity_fp32/config") * 1000
        try:
            while sent < 100_000:
                connection.sendall(many)
                sent += 1000
        except TimeoutError:
            pass  # the server reads no more of it

        assert 200 == _infer(server, {"inputs": [ONE]}).statuses[0]
        assert _peak_mib(server) < before + 64
