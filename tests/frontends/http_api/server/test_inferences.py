"""Inferences on real connections, which answer them themselves, whatever they are like."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import time
from typing import Any

import pytest

from tests.frontends.fake_gateway import failing, version_info
from tests.frontends.http_api.in_process_server import HttpHarness, run_scenario
from tests.support.garbage import freed_at_once
from tests.support.raw_http import raw_request
from tests.support.scenarios import scenario
from zmqtriton_floor.errors import Unavailable
from zmqtriton_floor.settings.frontends import Restriction
from zmqtriton_frontends.access import refusals
from zmqtriton_frontends.http_api.inference import json_documents
from zmqtriton_frontends.http_api.server import inference_exchange
from zmqtriton_frontends.http_api.server.inference_exchange import InferenceExchange

pytestmark = pytest.mark.slow

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
    "POST", INFER, HEAD + b"abcdefgh", Inference_Header_Content_Length=str(len(HEAD))
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


def packed(coding: str, body: bytes) -> bytes:
    return raw_request("POST", INFER, body, Content_Encoding=coding)


def chunked(*parts: bytes, **headers: str) -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    return raw_request("POST", INFER, b"", Transfer_Encoding="chunked", **headers) + body


#: Requests, and what they are answered.
ASKED: dict[str, tuple[bytes, int]] = {
    "json": (raw_request("POST", INFER, JSON), 200),
    "binary": (BINARY, 200),
    "a version": (raw_request("POST", "/v2/models/identity/versions/1/infer", JSON), 200),
    "what clients send": (
        raw_request("POST", INFER, JSON, Connection="keep-alive", Content_Type="application/json"),
        200,
    ),
    "a compressed answer": (
        raw_request("POST", INFER, JSON, Accept_Encoding="gzip;q=0.5, deflate"),
        200,
    ),
    "raw": (raw_request("POST", INFER, b"abcd", Inference_Header_Content_Length="0"), 200),
    "a query": (raw_request("POST", f"{INFER}?a=b", JSON), 200),
    "an escaped name": (raw_request("POST", "/v2/models/%69dentity/infer", JSON), 200),
    "a compressed body": (packed("gzip", gzip.compress(JSON)), 200),
    "a body in chunks": (chunked(JSON[:9], JSON[9:]), 200),
    "a compressed body in chunks": (
        chunked(gzip.compress(JSON)[:9], gzip.compress(JSON)[9:], Content_Encoding="gzip"),
        200,
    ),
    "tensors in chunks": (
        chunked(HEAD, b"abcdefgh", Inference_Header_Content_Length=str(len(HEAD))),
        200,
    ),
    "a header twice": (raw_request("POST", INFER, JSON, accept="a", Accept="b"), 200),
    "much JSON": (raw_request("POST", INFER, JSON + b" " * (2 << 20)), 200),
    "a wish for stages": (raw_request("POST", INFER, JSON, X_Stage_Times="1"), 200),
    "nothing in chunks": (chunked(), 400),
    "an unknown model": (raw_request("POST", "/v2/models/nobody/infer", JSON), 400),
    "an unknown version": (raw_request("POST", "/v2/models/identity/versions/9/infer", JSON), 404),
    "a decoupled model": (raw_request("POST", "/v2/models/decoupled/infer", JSON), 501),
    "no json": (raw_request("POST", INFER, b"{"), 400),
    "a wrong type": (raw_request("POST", "/v2/models/integers/infer", JSON), 400),
    "a wrong length": (raw_request("POST", INFER, JSON, Inference_Header_Content_Length="x"), 400),
    "an unknown coding": (packed("br", JSON), 501),
    "a coding that it is not": (packed("gzip", JSON), 400),
    "a wrong timeout": (raw_request("POST", INFER, JSON, X_Request_Timeout="soon"), 400),
    "too much JSON": (raw_request("POST", INFER, bytes((4 << 20) + 1)), 400),
    "too much JSON in chunks": (chunked(*[bytes(1 << 20)] * 5), 400),
}


@pytest.mark.parametrize(("data", "status"), ASKED.values(), ids=ASKED)
@pytest.mark.row("C08", "C25", "C98")
@scenario(run_scenario, http_max_input_size=4 << 20)
async def test_every_inference_is_answered_by_its_connection_which_goes_on(
    house: HttpHarness, /, data: bytes, status: int
) -> None:
    reader, writer = await house.connections.connect()
    for request, expected in ((data, status), (BINARY, 200), (data, status)):
        writer.write(request)
        assert int((await read(reader))[9:12]) == expected

    assert (0, 0) == (house.falcon_requests, house.connections.ledger.budget.held)


@pytest.mark.parametrize("method", ["GET", "PUT"])
@scenario(run_scenario)
async def test_another_method_is_no_inference(house: HttpHarness, /, method: str) -> None:
    reader, _ = await house.connections.connect(raw_request(method, INFER, JSON))

    answer = await read(reader)
    assert (answer[9:12], house.falcon_requests) == (b"405", 1)
    assert b"\r\nallow: POST\r\n" in answer


@scenario(run_scenario, http_header_forward_pattern="x-my-")
async def test_headers_that_match_the_pattern_become_parameters_as_they_were_written(
    house: HttpHarness, /
) -> None:
    data = raw_request("POST", INFER, JSON, X_My_Key="7", X_Other="8")
    reader, _ = await house.connections.connect(data.replace(b"X-My-Key", b"x-MY-Key"))

    assert (await read(reader))[9:12] == b"200"
    assert house.gateway.requests[0].body.parameters == {"x-MY-Key": "7"}
    assert house.falcon_requests == 0


@pytest.mark.parametrize("body", [JSON, bytes(3 << 20)], ids=["small", "large"])
@pytest.mark.parametrize(("key", "status"), [("right", b"200"), ("wrong", b"403")])
@pytest.mark.row("C36")
@scenario(run_scenario, http_restricted_api=(Restriction(("inference",), "admin", "right"),))
async def test_a_restricted_inference_without_its_key_is_refused_after_its_body(
    house: HttpHarness, /, key: str, status: bytes, body: bytes
) -> None:
    data = raw_request("POST", INFER, body, admin=key)
    reader, writer = await house.connections.connect(data[:-1])
    for _ in range(20):
        await house.connections.run_loop()
    if status == b"403":
        assert house.connections.ledger.budget.held == 0  # it is dropped as it comes
    writer.write(data[-1:] + raw_request("POST", INFER, JSON, admin="right"))

    if status == b"403" or body is JSON:
        assert (await read(reader))[9:12] == status
    else:
        assert b"failed to parse the request JSON buffer" in await read(reader)
    assert (await read(reader))[9:12] == b"200"
    assert house.falcon_requests == 0


@scenario(run_scenario, http_restricted_api=(Restriction(("inference",), "admin", "right"),))
async def test_each_of_several_equal_requests_that_are_refused_is_reported(
    house: HttpHarness, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[refusals.Refusal] = []
    monkeypatch.setattr(refusals, "listeners", [reports.append])
    data = raw_request("POST", INFER, JSON, admin="wrong")
    reader, _ = await house.connections.connect(data * 2)

    assert [b"403"] * 2 == [(await read(reader))[9:12] for _ in range(2)]
    assert 2 == len(reports)


@scenario(run_scenario, http_restricted_api=(Restriction(("inference",), "admin", "right"),))
async def test_of_a_refused_body_so_much_is_dropped_and_then_the_connection_ends(
    house: HttpHarness, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inference_exchange, "DROP_BYTES", 1 << 20)

    data = raw_request("POST", INFER, bytes(3 << 20), admin="wrong")
    reader, _ = await house.connections.connect(data[: 2 << 20])

    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"\r\nConnection: close\r\n" in answer


@scenario(run_scenario, ledger_bytes=1300000)
async def test_a_body_in_chunks_is_accounted_for_as_it_comes(house: HttpHarness, /) -> None:
    data = chunked(*[b" " * 100_000] * 10)
    _, writer = await house.connections.connect(data[:500_000])
    while house.connections.ledger.requests.held < 400_000:
        await house.connections.run_loop()
    other, second = await house.connections.connect(data)
    assert (await read(other)).startswith(b"HTTP/1.1 503 ")

    writer.close()
    while house.connections.ledger.budget.held:
        await house.connections.run_loop()
    second.write(data)
    assert (await read(other)).startswith(b"HTTP/1.1 400 ")


@scenario(run_scenario, http_max_input_size=100_000)
async def test_a_body_that_is_too_large_takes_no_room_while_its_rest_comes(
    house: HttpHarness, /
) -> None:
    data = chunked(*[b" " * 60_000] * 3)
    reader, writer = await house.connections.connect(data[:50_000])
    while not house.connections.ledger.budget.held:
        await house.connections.run_loop()
    writer.write(data[50_000:-100])
    while house.connections.ledger.budget.held:
        await house.connections.run_loop()

    writer.write(data[-100:])
    assert (await read(reader)).startswith(b"HTTP/1.1 400 ")


@scenario(run_scenario, ledger_bytes=8 << 20)
async def test_what_is_inflated_is_accounted_for_before_it_is_there(house: HttpHarness, /) -> None:
    bomb = packed("gzip", gzip.compress(bytes(32 << 20)))
    reader, _ = await house.connections.connect(bomb + BINARY)

    assert (await read(reader)).startswith(b"HTTP/1.1 503 ")
    assert (await read(reader)).startswith(b"HTTP/1.1 200 ")
    assert house.connections.ledger.budget.held == 0


@pytest.mark.parametrize(
    "data",
    [
        packed("gzip", gzip.compress(bytes(32 << 20))),
        raw_request("POST", INFER, JSON + b" " * (8 << 20)),
    ],
    ids=["inflated", "parsed"],
)
@pytest.mark.row("C33")
@scenario(run_scenario)
async def test_a_client_that_leaves_while_a_thread_works_on_its_body_leaves_nothing(
    house: HttpHarness, /, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    begun: list[int] = []

    async def work_for_ever(size: int, *_: Any) -> None:
        begun.append(size)
        await asyncio.Event().wait()

    monkeypatch.setattr(json_documents, "aside", work_for_ever)

    _, writer = await house.connections.connect(data)
    while not begun:
        await house.connections.run_loop()
    assert house.connections.ledger.budget.held

    writer.transport.abort()

    while house.connections.ledger.budget.held or len(house.connections.connections.room):
        await house.connections.run_loop()
    assert house.gateway.requests == []


@pytest.mark.parametrize(
    "data",
    [
        packed("gzip", gzip.compress(bytes(1 << 20)) + b"x"),
        raw_request("POST", INFER, bytes(1 << 20)),
    ],
    ids=["inflated", "parsed"],
)
@scenario(run_scenario)
async def test_what_a_thread_refuses_is_freed_at_once(house: HttpHarness, /, data: bytes) -> None:
    reader, writer = await house.connections.connect()
    with freed_at_once(InferenceExchange):
        writer.write(data)
        assert (await read(reader)).startswith(b"HTTP/1.1 400 ")
        await house.connections.run_loop()


@pytest.mark.row("C34")
@scenario(run_scenario, http_restricted_api=(Restriction(("inference",), "admin", "right"),))
async def test_who_waits_to_be_told_to_send_a_body_is_told_even_if_it_will_be_refused(
    house: HttpHarness, /
) -> None:
    for key, status in (("right", b"200"), ("wrong", b"403")):
        data = raw_request("POST", INFER, JSON, admin=key, Expect="100-continue")
        reader, writer = await house.connections.connect(data.removesuffix(JSON))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(JSON)
        assert (await read(reader))[9:12] == status
        writer.close()


@pytest.mark.row("L18")
@pytest.mark.parametrize(
    "request_bytes",
    [
        raw_request("POST", INFER, JSON, X_Request_Timeout="2.5"),
        chunked(JSON, X_Request_Timeout="2.5"),
    ],
    ids=["announced", "in chunks"],
)
@scenario(run_scenario)
async def test_the_timeout_of_equal_requests_counts_for_each_anew(
    house: HttpHarness, /, request_bytes: bytes
) -> None:
    reader, writer = await house.connections.connect()
    asked_ns = []
    for _ in range(3):
        asked_ns.append(time.monotonic_ns())
        writer.write(request_bytes)
        assert (await read(reader))[9:12] == b"200"

    for asked_at_ns, come in zip(asked_ns, house.gateway.requests, strict=True):
        assert asked_at_ns + 2_500_000_000 < come.options.deadline_ns


@pytest.mark.row("C34")
@scenario(run_scenario)
async def test_requests_on_one_connection_are_answered_in_their_order(
    house: HttpHarness, /
) -> None:
    bodies = [json.dumps({"id": str(i), "inputs": [VALUES]}).encode() for i in range(60)]
    heads = [raw_request("POST", INFER, body) for body in bodies]
    heads[20::7] = map(chunked, bodies[20::7])
    heads[25::7] = [packed("gzip", gzip.compress(body)) for body in bodies[25::7]]
    reader, _ = await house.connections.connect(b"".join(heads))

    got = [json.loads((await read(reader)).partition(b"\r\n\r\n")[2]) for _ in heads]
    assert [answer["id"] for answer in got] == [str(i) for i in range(60)]


@pytest.mark.parametrize(
    "cuts", [(BINARY.index(HEAD),), (10, 40, 200), (len(BINARY) - 3,), range(1, len(BINARY), 3)]
)
@scenario(run_scenario)
async def test_a_request_in_pieces_is_answered_too(
    house: HttpHarness, /, cuts: tuple[int, ...]
) -> None:
    reader, writer = await house.connections.connect()
    for start, end in zip((0, *cuts), (*cuts, len(BINARY)), strict=True):
        writer.write(BINARY[start:end])
        await asyncio.sleep(0.002)

    assert (await read(reader)).endswith(b"abcdefgh")
    assert house.falcon_requests == 0


@pytest.mark.row("C33")
@scenario(run_scenario)
async def test_a_body_that_does_not_follow_its_head_is_waited_for_and_never_executed(
    house: HttpHarness, /
) -> None:
    reader, _ = await house.connections.connect(BINARY[: BINARY.index(HEAD)])
    for seconds in (1, 1, 31):
        house.connections.advance(seconds)
        await house.connections.run_loop()

    assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
    assert house.gateway.requests == []


@pytest.mark.row("C33")
@scenario(run_scenario)
async def test_a_client_that_leaves_has_its_request_cancelled(house: HttpHarness, /) -> None:
    house.gateway.gate = asyncio.Event()
    _, writer = await house.connections.connect(BINARY)
    assert 1 == len(house.gateway.requests)
    assert not house.connections.are_idle

    writer.close()

    while not house.gateway.cancelled:
        await house.connections.run_loop()


@scenario(run_scenario)
async def test_who_waits_while_the_server_ends_is_answered_and_closed(
    house: HttpHarness, /
) -> None:
    gate = house.gateway.gate = asyncio.Event()
    reader, _ = await house.connections.connect(BINARY + BINARY)
    house.connections.connections.end(is_followed=False)

    gate.set()

    answer = await reader.read()
    assert b"HTTP/1.1 200 OK\r\n" in answer
    assert b"\r\nConnection: close\r\n" in answer
    assert len(house.gateway.requests) == 1


def step(*, start: bool = False, end: bool = False) -> bytes:
    parameters = {"sequence_id": 7, "sequence_start": start, "sequence_end": end}
    body = json.dumps({"inputs": [VALUES], "parameters": parameters}).encode()
    return raw_request("POST", "/v2/models/sequences/infer", body)


@pytest.mark.parametrize(
    ("is_followed", "steps"), [(True, [step(), step(end=True)]), (False, [])], ids=str
)
@pytest.mark.row("E78")
@scenario(run_scenario)
async def test_a_sequence_that_begins_while_the_server_ends_goes_on_if_another_follows(
    house: HttpHarness, /, is_followed: bool, steps: list[bytes]
) -> None:
    house.gateway.catalogue.update(version_info("sequences", sequence_batching={}))
    connections = house.connections
    reader, writer = await connections.connect(step(start=True))
    assert b"Connection: close" not in await read(reader)
    connections.connections.end(is_followed=is_followed)
    connections.connections.end_still(1.0)

    answers = []
    for data in [step(start=True), *steps]:
        writer.write(data)
        answers.append(await read(reader))
        connections.now += 2.0
        connections.connections.end_still(1.0)
        await connections.run_loop()
    is_last = [b"\r\nConnection: close\r\n" in answer for answer in answers]
    assert [False] * len(steps) + [True] == is_last
    assert b"" == await reader.read()


@pytest.mark.parametrize(
    ("error", "status", "text", "logged"),
    [
        (Unavailable("not now"), b"503 Service Unavailable", b"not now", ""),
        (
            ValueError("secret"),
            b"500 Internal Server Error",
            b"internal error",
            f"could not answer POST {INFER}",
        ),
    ],
    ids=["of the model", "of ours"],
)
@scenario(run_scenario)
async def test_an_error_of_the_model_is_told_and_a_fault_of_ours_without_words(
    house: HttpHarness,
    /,
    caplog: pytest.LogCaptureFixture,
    *,
    error: Exception,
    status: bytes,
    text: bytes,
    logged: str,
) -> None:
    house.gateway.respond = failing(error)
    reader, _ = await house.connections.connect(BINARY)

    answer = await read(reader)
    assert answer.startswith(b"HTTP/1.1 %s\r\n" % status)
    assert answer.endswith(b'{"error":"%s"}' % text)
    assert logged in caplog.text


@scenario(run_scenario)
async def test_who_does_not_read_is_not_read_of(house: HttpHarness, /) -> None:
    count = 4000
    body = json.dumps({"inputs": [{**VALUES, "shape": [2000], "data": [1] * 2000}]}).encode()

    _, writer = await house.connections.connect()
    writer.write(raw_request("POST", INFER, body) * count)
    seen = -1
    while not seen or len(house.gateway.requests) != seen:
        seen = len(house.gateway.requests)
        await asyncio.sleep(0.2)

    assert 0 < seen < count // 2
    writer.transport.abort()


@scenario(run_scenario)
async def test_a_connection_of_inferences_alone_is_closed_when_it_rests(
    house: HttpHarness, /
) -> None:
    reader, _ = await house.connections.connect(BINARY)
    await read(reader)
    house.connections.advance(1)
    assert not reader.at_eof()

    house.connections.advance(80)

    assert await reader.read() == b""
