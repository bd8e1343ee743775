"""Events of `generate_stream` and of `infer_stream`."""

from __future__ import annotations

import asyncio
import gzip
import json
import struct
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from falcon.testing import Result

from tests.frontends.http_api.fakes import Client, FakeGateway, room_for_all
from tests.support.scenarios import scenario
from tests.support.streams import failure, final, item
from zmqtriton_floor.errors import InternalError, NotFound, Unavailable
from zmqtriton_frontends.gateway.streams import StreamItem
from zmqtriton_frontends.inference import admission
from zmqtriton_frontends.process.turns import Cost, TaskTurn, Turns
from zmqtriton_standard.generate.request import read
from zmqtriton_standard.generate.response import Events, Writer


def follow(
    test: Callable[[Events, FakeGateway], Coroutine[Any, Any, None]],
    write: Callable[[Any], Awaitable[bytes]] | None = None,
) -> FakeGateway:
    """Runs the test on the events of a request with the id "a", the first one being `first`."""

    async def run() -> FakeGateway:
        gateway = FakeGateway()
        model = gateway.catalogue.find("decoupled")
        body = read({"id": "a", "INPUT0": 1}, model.signature.inputs)
        request = admission.prepare(gateway.catalogue, model, body, admission.SchedulingOptions())
        items, turn = (
            gateway.stream(request),
            TaskTurn(Turns(asyncio.get_running_loop().call_soon), Cost()),
        )
        events = Events(b"first", items, write or Writer(model, "a", room_for_all).event, turn=turn)
        try:
            await asyncio.wait_for(test(events, gateway), 10)
        finally:
            await events.close()
        return gateway

    return asyncio.run(run())


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def event(fields: str) -> bytes:
    text = f'data: {{{fields},"id":"a","model_name":"decoupled","model_version":"1"}}\n\n'
    return text.encode()


@scenario(follow)
async def test_events_that_are_ready_go_out_together(
    events: Events, gateway: FakeGateway, /
) -> None:
    await anext(events)
    gateway.fake_streams.put("a", item(b"x"), item(b"y"))
    await settle()

    assert await anext(events) == event('"TEXT":"x"') + event('"TEXT":"y"')


@scenario(follow)
async def test_a_slow_stream_is_sent_event_by_event(
    events: Events, gateway: FakeGateway, /
) -> None:
    await anext(events)
    for text in ("x", "y"):
        waiting = asyncio.ensure_future(anext(events))
        await settle()
        assert not waiting.done()

        gateway.fake_streams.put("a", item(text.encode()))

        assert await waiting == event(f'"TEXT":"{text}"')


@scenario(follow)
async def test_an_error_is_an_event_and_ends_nothing_unless_it_is_final(
    events: Events, gateway: FakeGateway, /
) -> None:
    gateway.fake_streams.put("a", failure(NotFound("lost")), item(b"x", is_final=True))

    body = b"".join([chunk async for chunk in events])

    assert body == b'firstdata: {"error":"lost"}\n\n' + event('"TEXT":"x"')


@scenario(follow)
async def test_the_event_of_a_server_that_cannot_answer_now_says_when_to_ask_again(
    events: Events, gateway: FakeGateway, /
) -> None:
    gateway.fake_streams.put("a", failure(Unavailable("stops"), is_final=True))

    body = b"".join([chunk async for chunk in events])

    assert body == b'firstdata: {"error":"stops"}\nretry: 1000\n\n'


@scenario(follow)
async def test_no_more_is_taken_while_the_connection_does_not_take_chunks(
    events: Events, gateway: FakeGateway, /
) -> None:
    gateway.fake_streams.put("a", *(item(b"%d" % n) for n in range(1000)), final())
    await settle()

    assert gateway.fake_streams.consumed["a"] < 300
    body = b"".join([chunk async for chunk in events])
    assert body == b"first" + b"".join(event(f'"TEXT":"{n}"') for n in range(1000))


@scenario(follow)
async def test_a_stream_that_has_used_its_turn_up_lets_others_work_after_each_event(
    events: Events, gateway: FakeGateway, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TaskTurn, "is_over", True)
    gateway.fake_streams.put("a", *(item(b"x") for _ in range(100)))
    await settle()

    assert 0 < gateway.fake_streams.consumed["a"] <= 10


@scenario(follow)
async def test_large_events_are_taken_in_smaller_numbers(
    events: Events, gateway: FakeGateway, /
) -> None:
    gateway.fake_streams.put("a", *(item(b"x" * 300_000) for _ in range(20)))
    await settle()

    assert gateway.fake_streams.consumed["a"] < 6


@scenario(follow)
async def test_an_event_that_takes_long_keeps_its_place(
    events: Events, gateway: FakeGateway, /
) -> None:
    gateway.fake_streams.put("a", item(b"x" * (2 << 20)), item(b"y", is_final=True))

    body = b"".join([chunk async for chunk in events])

    assert body == b"first" + event(f'"TEXT":"{"x" * (2 << 20)}"') + event('"TEXT":"y"')


@scenario(follow)
async def test_who_leaves_while_an_event_is_written_cancels_the_request(
    events: Events, gateway: FakeGateway, /
) -> None:
    gateway.fake_streams.put("a", item(b"x" * (2 << 20)))
    while not gateway.fake_streams.consumed.get("a"):
        await asyncio.sleep(0)

    await events.close()

    assert gateway.fake_streams.cancelled == ["a"]


@scenario(follow)
async def test_closing_cancels_the_request(events: Events, gateway: FakeGateway, /) -> None:
    gateway.fake_streams.put("a", item(b"x"))
    await settle()

    await events.close()

    assert gateway.fake_streams.cancelled == ["a"]


def test_a_fault_of_ours_is_told_to_the_client(caplog: pytest.LogCaptureFixture) -> None:
    async def write(_: Any) -> bytes:
        raise ZeroDivisionError

    async def test(events: Events, gateway: FakeGateway) -> None:
        gateway.fake_streams.put("a", item(b"x"))

        chunks = [chunk async for chunk in events]

        assert b"".join(chunks) == b'firstdata: {"error":"internal error"}\n\n'

    follow(test, write)
    assert "ZeroDivisionError" in caplog.text


INPUT = {"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [1.0]}
DOCUMENT = {"id": "7", "inputs": [INPUT]}


def ask(
    *items: StreamItem,
    document: Any = DOCUMENT,
    model: str = "decoupled",
    headers: dict[str, str] | None = None,
) -> tuple[Result, FakeGateway]:
    return send(json.dumps(document).encode(), *items, model=model, headers=headers)


def send(
    body: bytes,
    *items: StreamItem,
    model: str = "decoupled",
    headers: dict[str, str] | None = None,
) -> tuple[Result, FakeGateway]:
    gateway = FakeGateway(http_header_forward_pattern="x-my-|sequence")
    gateway.fake_streams.put("7", *items)
    path = f"/v2/models/{model}/infer_stream"
    return Client(gateway).request("POST", path, body, headers), gateway


def events(result: Result) -> list[Any]:
    lines = result.content.decode().split("\n\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line]


@pytest.mark.row("L10")
@pytest.mark.parametrize("model", ["decoupled", "identity", "decoupled/versions/1"])
def test_each_response_is_an_event_with_names_and_shapes(model: str) -> None:
    result, gateway = ask(item(b"x"), item(b"y", n=1), final(), model=model)

    assert 200 == result.status_code
    assert "text/event-stream; charset=utf-8" == result.headers["content-type"]
    head = {"id": "7", "model_name": model.partition("/")[0], "model_version": "1"}
    text = {"name": "TEXT", "datatype": "BYTES", "shape": [1]}
    assert events(result) == [
        {**head, "outputs": [{**text, "data": ["x"]}]},
        {**head, "parameters": {"n": 1}, "outputs": [{**text, "data": ["y"]}]},
    ]
    assert [] == gateway.fake_streams.cancelled


@pytest.mark.row("L10")
def test_the_first_response_decides_the_status_and_a_later_error_is_an_event() -> None:
    failed, _ = ask(failure(InternalError("no"), is_final=True))
    later, _ = ask(item(b"x"), failure(InternalError("no"), is_final=True))
    none, _ = ask(final())

    assert (500, [{"error": "no"}]) == (failed.status_code, events(failed))
    assert (200, {"error": "no"}) == (later.status_code, events(later)[-1])
    assert (200, b"") == (none.status_code, none.content)


@pytest.mark.row("L10")
@pytest.mark.parametrize(
    ("more", "headers", "said"),
    [
        ({"inputs": [{**INPUT, "datatype": "INT32", "data": [1]}]}, {}, "data-type"),
        ({"inputs": 5}, {}, "Unable to parse 'inputs'"),
        ({"parameters": {"binary_data_output": True}}, {}, "infer_stream answers with JSON alone"),
        (
            {"outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]},
            {},
            "infer_stream answers with JSON alone",
        ),
        (
            {"outputs": [{"name": "OUTPUT0", "parameters": {"classification": 2}}]},
            {},
            "infer_stream answers with JSON alone",
        ),
        ({}, {"Inference-Header-Content-Length": "0"}, "infer_stream answers with JSON alone"),
        ({}, {"Inference-Header-Content-Length": "9999"}, "should be in range"),
        ({}, {"Content-Encoding": "gzip"}, "failed to decompress the request body as gzip"),
        ({}, {"sequence_id": "5"}, "'sequence_id' is reserved"),
    ],
)
def test_what_is_refused_is_refused_before_the_model_runs(
    more: dict[str, Any], headers: dict[str, str], said: str
) -> None:
    result, gateway = ask(document={**DOCUMENT, **more}, headers=headers)

    assert 400 == result.status_code
    assert said in result.json["error"]
    assert [] == gateway.fake_streams.started


@pytest.mark.row("L10")
def test_inputs_may_be_binary_and_compressed_and_headers_reach_the_model() -> None:
    described = {**INPUT, "parameters": {"binary_data_size": 4}}
    del described["data"]
    text = json.dumps({"id": "7", "inputs": [described]}).encode()
    headers = {
        "Inference-Header-Content-Length": str(len(text)),
        "Content-Encoding": "gzip",
        "X-My-Name": "me",
    }

    body = gzip.compress(text + struct.pack("<f", 2.5))
    result, gateway = send(body, item(b"x"), final(), headers=headers)

    assert [["x"]] == [event["outputs"][0]["data"] for event in events(result)]
    [request] = gateway.requests
    assert struct.pack("<f", 2.5) == bytes(request.body.inputs[0].data)
    assert {"x-my-name": "me"} == request.body.parameters


@pytest.mark.row("L10")
def test_an_unknown_model_is_refused() -> None:
    result, _ = ask(model="nobody")

    assert 400 == result.status_code
