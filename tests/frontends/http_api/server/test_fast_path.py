"""The fast path answers exactly as Falcon does.

Each request is sent twice on real connections: as it is, and with a header given twice, which
leaves it to Falcon.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.frontends.http_api.fakes import FakeGateway
from tests.frontends.http_api.in_process_server import HttpHarness, run_scenario
from tests.support.raw_http import raw_request
from zmqtriton_floor.access.token_file import Grant, digest
from zmqtriton_floor.errors import Unavailable
from zmqtriton_floor.wire import ResponseBody
from zmqtriton_frontends.http1 import heads
from zmqtriton_frontends.http_api import app
from zmqtriton_frontends.http_api.asgi.access import Access
from zmqtriton_frontends.http_api.server.fast_path import MAX_JSON_BYTES
from zmqtriton_frontends.inference.admission import CheckedRequest

INFER = "/v2/models/identity/infer"
VALUES = {"name": "INPUT0", "shape": [2], "datatype": "FP32", "data": [0.5, 1]}
JSON = json.dumps({"inputs": [VALUES]}).encode()
HEAD = json.dumps(
    {
        "id": "7",
        "inputs": [{**VALUES, "data": None, "parameters": {"binary_data_size": 8}}],
        "parameters": {"binary_data_output": True},
    }
).replace('"data": null, ', "").encode()  # fmt: skip
BINARY = raw_request(
    *("POST", INFER, HEAD + b"abcdefgh"), Inference_Header_Content_Length=str(len(HEAD))
)


async def read(reader: asyncio.StreamReader) -> bytes:
    """One response, without its date, and its headers in the order of the alphabet."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: ([0-9]+)\r\n", head)
    assert length is not None, head
    body = await reader.readexactly(int(length[1]))
    first, *named = re.sub(rb"\r\nDate: [^\r]+", b"", head).split(b"\r\n")
    assert named[-2:] == [b"", b""]
    return b"\r\n".join([first, *sorted(named[:-2], key=bytes.lower), b"", body])


def long_way(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\r\nX: y\r\nX: y\r\n", 1)


SHORT = {
    "json": raw_request("POST", INFER, JSON),
    "binary": BINARY,
    "a version": raw_request("POST", "/v2/models/identity/versions/1/infer", JSON),
    "what clients send": raw_request(
        *("POST", INFER, JSON), Connection="keep-alive", Content_Type="application/json"
    ),
    "compressed": raw_request("POST", INFER, JSON, Accept_Encoding="gzip;q=0.5, deflate"),
    "raw": raw_request("POST", INFER, b"abcd", Inference_Header_Content_Length="0"),
    "an unknown model": raw_request("POST", "/v2/models/nobody/infer", JSON),
    "an unknown version": raw_request("POST", "/v2/models/identity/versions/9/infer", JSON),
    "a decoupled model": raw_request("POST", "/v2/models/decoupled/infer", JSON),
    "no json": raw_request("POST", INFER, b"{"),
    "a wrong type": raw_request("POST", "/v2/models/integers/infer", JSON),
}
LONG = {
    "another method": raw_request("PUT", INFER, JSON),
    "another path": raw_request("POST", f"{INFER}?a=b", JSON),
    "an escaped name": raw_request("POST", "/v2/models/%69dentity/infer", JSON),
    "a body that is packed": raw_request("POST", INFER, JSON, Content_Encoding="gzip"),
    "a body in chunks": raw_request("POST", INFER, Transfer_Encoding="chunked"),
    "a header twice": raw_request("POST", INFER, JSON, accept="a", Accept="b"),
    "a wrong length": raw_request("POST", INFER, JSON, Inference_Header_Content_Length="x"),
    "very much JSON": raw_request("POST", INFER, bytes(MAX_JSON_BYTES + 1)),
    "very much JSON before tensors": raw_request(
        *("POST", INFER, bytes(1 << 20)),
        Inference_Header_Content_Length=str(MAX_JSON_BYTES + 1),
    ),
}


@pytest.mark.parametrize("data", SHORT.values(), ids=SHORT)
@pytest.mark.row("C08", "C25", "C98")
def test_the_answer_is_the_same_as_the_long_way(data: bytes) -> None:
    async def scenario(house: HttpHarness) -> None:
        reader, writer = await house.connections.connect(data)
        short = await read(reader)
        assert house.falcon_requests == 0

        writer.write(long_way(data))
        assert await read(reader) == short
        assert house.falcon_requests == 1
        writer.close()

    run_scenario(scenario)


@pytest.mark.parametrize("data", LONG.values(), ids=LONG)
def test_what_is_unusual_is_left_to_falcon(data: bytes) -> None:
    gateway: Any = FakeGateway()
    fast_path = app.fast_path(gateway, app.routes(gateway), Access(gateway.settings))
    assert fast_path is not None

    assert fast_path.read(heads.read(data[: data.index(b"\r\n\r\n") + 4])) is None


def test_what_names_of_headers_matter_to_takes_the_long_way() -> None:
    gateway: Any = FakeGateway(http_header_forward_pattern="x-.*")

    assert app.fast_path(gateway, app.routes(gateway), Access(gateway.settings)) is None


@pytest.mark.parametrize(("key", "ways", "status"), [("right", 0, b"200"), ("wrong", 1, b"403")])
@pytest.mark.row("C36")
def test_a_restricted_inference_is_short_with_its_key_alone(
    key: str, ways: int, status: bytes
) -> None:
    async def scenario(house: HttpHarness) -> None:
        reader, writer = await house.connections.connect(
            raw_request("POST", INFER, JSON, admin=key)
        )

        assert (await read(reader))[9:12] == status
        assert house.falcon_requests == ways
        writer.close()

    run_scenario(scenario, http_restricted_api=[[["inference"], "admin", "right"]])


@pytest.mark.row("L09")
def test_an_inference_is_short_with_a_token_as_long_as_that_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "tokens"

    def write(*names: str) -> None:
        lines = [Grant(name, digest(name), frozenset({"infer"}), ("id*",)).line() for name in names]
        path.write_text("\n".join(lines))
        path.chmod(0o600)

    async def scenario(house: HttpHarness) -> None:
        assert house.tokens is not None
        request = raw_request("POST", INFER, JSON, Authorization="Bearer first")
        other = raw_request("POST", "/v2/models/strings/infer", JSON, Authorization="Bearer first")
        reader, writer = await house.connections.connect(request * 3)
        assert [(await read(reader))[9:12] for _ in range(3)] == [b"200"] * 3
        assert house.falcon_requests == 0
        writer.write(other + request)
        assert [(await read(reader))[9:12] for _ in range(2)] == [b"403", b"200"]
        assert house.falcon_requests == 1

        write("second")
        house.tokens.look()
        house.tokens.look()
        writer.write(request + request.replace(b"first", b"second"))
        assert [(await read(reader))[9:12] for _ in range(2)] == [b"401", b"200"]
        assert house.falcon_requests == 2
        writer.close()

    write("first")
    run_scenario(scenario, tokens=str(path))


@pytest.mark.row("L18")
@pytest.mark.parametrize("way", [bytes, long_way])
def test_the_timeout_of_equal_requests_counts_for_each_anew(
    way: Callable[[bytes], bytes],
) -> None:
    async def scenario(house: HttpHarness) -> None:
        request = way(raw_request("POST", INFER, JSON, X_Request_Timeout="2.5"))
        reader, writer = await house.connections.connect()
        asked_ns = []
        for _ in range(3):
            asked_ns.append(time.monotonic_ns())
            writer.write(request)
            assert (await read(reader))[9:12] == b"200"

        for asked, come in zip(asked_ns, house.gateway.requests, strict=True):
            assert asked + 2_500_000_000 < come.options.deadline_ns
        writer.close()

    run_scenario(scenario)


@pytest.mark.row("C34")
def test_requests_on_one_connection_are_answered_in_their_order() -> None:
    async def scenario(house: HttpHarness) -> None:
        bodies = [json.dumps({"id": str(i), "inputs": [VALUES]}).encode() for i in range(60)]
        asked = [raw_request("POST", INFER, body) for body in bodies]
        asked[20::7] = map(long_way, asked[20::7])
        reader, writer = await house.connections.connect(b"".join(asked))

        got = [json.loads((await read(reader)).partition(b"\r\n\r\n")[2]) for _ in asked]
        assert [answer["id"] for answer in got] == [str(i) for i in range(60)]
        assert len(asked[20::7]) <= house.falcon_requests < len(asked)
        writer.close()

    run_scenario(scenario)


@pytest.mark.parametrize(
    "cuts", [(BINARY.index(HEAD),), (10, 40, 200), (len(BINARY) - 3,), range(1, len(BINARY), 3)]
)
def test_a_request_in_pieces_is_answered_too(cuts: tuple[int, ...]) -> None:
    async def scenario(house: HttpHarness) -> None:
        reader, writer = await house.connections.connect()
        for start, end in zip((0, *cuts), (*cuts, len(BINARY)), strict=True):
            writer.write(BINARY[start:end])
            await asyncio.sleep(0.002)

        assert (await read(reader)).endswith(b"abcdefgh")
        assert house.falcon_requests == 0
        writer.close()

    run_scenario(scenario)


def test_a_body_that_does_not_follow_its_head_is_waited_for_and_never_executed() -> None:
    async def scenario(house: HttpHarness) -> None:
        reader, writer = await house.connections.connect(BINARY[: BINARY.index(HEAD)])
        for seconds in (1, 1, 31):
            house.connections.advance(seconds)
            await house.connections.run_loop()

        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        assert house.gateway.requests == []
        writer.close()

    run_scenario(scenario)


@pytest.mark.row("C33")
def test_a_client_that_leaves_has_its_request_cancelled() -> None:
    async def scenario(house: HttpHarness) -> None:
        house.gateway.is_holding = True
        _, writer = await house.connections.connect(BINARY)
        assert list(house.gateway.held_replies) == [1]
        assert not house.connections.connections.are_idle

        writer.close()

        while house.gateway.held_replies:
            await house.connections.run_loop()

    run_scenario(scenario)


def test_who_waits_while_the_server_ends_is_answered_and_closed() -> None:
    async def scenario(house: HttpHarness) -> None:
        house.gateway.is_holding = True
        reader, writer = await house.connections.connect(BINARY + BINARY)
        house.connections.connections.refuse_requests()

        house.gateway.release_held(1)

        answer = await reader.read()
        assert b"HTTP/1.1 200 OK\r\n" in answer
        assert b"\r\nConnection: close\r\n" in answer
        assert len(house.gateway.requests) == 1
        writer.close()

    run_scenario(scenario)


def test_what_the_model_answers_with_an_error_is_told() -> None:
    def fail(request: CheckedRequest) -> ResponseBody:
        raise Unavailable("not now")

    async def scenario(house: HttpHarness) -> None:
        house.gateway.respond = fail
        reader, writer = await house.connections.connect(BINARY)

        answer = await read(reader)
        assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert answer.endswith(b'{"error":"not now"}')
        writer.close()

    run_scenario(scenario)


def test_a_fault_of_ours_is_told_without_words(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(house: HttpHarness) -> None:
        house.gateway.is_holding = True
        reader, writer = await house.connections.connect(BINARY)
        house.gateway.held_replies.pop(1).set_exception(ValueError("secret"))

        answer = await read(reader)
        assert answer.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
        assert answer.endswith(b'{"error":"internal error"}')
        writer.close()

    run_scenario(scenario)
    assert f"could not answer POST {INFER}" in caplog.text


def test_who_does_not_read_is_not_read_of() -> None:
    count = 4000
    body = json.dumps({"inputs": [{**VALUES, "shape": [2000], "data": [1] * 2000}]}).encode()

    async def scenario(house: HttpHarness) -> None:
        _, writer = await house.connections.connect()
        writer.write(raw_request("POST", INFER, body) * count)
        seen = -1
        while not seen or len(house.gateway.requests) != seen:
            seen = len(house.gateway.requests)
            await asyncio.sleep(0.2)

        assert 0 < seen < count // 2
        writer.transport.abort()

    run_scenario(scenario)


def test_a_connection_that_only_took_the_shortcut_is_closed_when_it_rests() -> None:
    async def scenario(house: HttpHarness) -> None:
        reader, writer = await house.connections.connect(BINARY)
        await read(reader)
        house.connections.advance(1)
        assert not reader.at_eof()

        house.connections.advance(80)

        assert await reader.read() == b""
        writer.close()

    run_scenario(scenario)
