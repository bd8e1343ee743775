from __future__ import annotations

import gzip
import json
import struct
from typing import Any

import pytest
from falcon.testing import Result

from tests.frontends.http_api.fakes import Client, FakeGateway
from tests.support.streams import failure, final, item
from zmqtriton_floor.errors import InternalError
from zmqtriton_frontends.gateway.streams import StreamItem

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
