"""The binary tensor extension and raw requests, from the bytes of a body to those of a response."""

from __future__ import annotations

import json
from typing import Any

import pytest
from falcon.testing import Result

from tests.frontends.http_api.fakes import FakeGateway
from tests.frontends.http_api.inference.test_infer import (
    FP32,
    LENGTH,
    TWO,
    described,
    document,
    infer,
    infer_binary,
)
from zmqtriton_floor.wire import Tensor


def split(result: Result) -> tuple[dict[str, Any], bytes]:
    length = int(result.headers[LENGTH])
    return json.loads(result.content[:length]), result.content[length:]


# --------------------------------------------------------------------- binary


@pytest.mark.row("C23")
def test_binary_inputs_are_taken_in_the_order_of_the_inputs() -> None:
    gateway = FakeGateway()
    entries = [
        described(name=name, shape=[1, 2], data=..., parameters={"binary_data_size": 8})
        for name in ("INPUT1", "INPUT0")
    ]

    result = infer_binary(gateway, document(*entries), TWO + bytes(8), "batching")

    assert result.status_code == 200, result.text
    data = {t.name: bytes(t.data) for t in gateway.requests[0].body.inputs}
    assert data == {"INPUT1": TWO, "INPUT0": bytes(8)}


def test_binary_and_json_inputs_may_be_mixed() -> None:
    gateway = FakeGateway()
    body = document(
        described(shape=[1, 2]),
        described(name="INPUT1", shape=[1, 2], data=..., parameters={"binary_data_size": 8}),
    )

    infer_binary(gateway, body, bytes(8), "batching")

    assert [bytes(t.data) for t in gateway.requests[0].body.inputs] == [TWO, bytes(8)]


@pytest.mark.parametrize(
    "fields",
    [
        {"parameters": {"binary_data_output": True}},
        {"outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]},
    ],
)
@pytest.mark.row("C26")
def test_binary_outputs_stand_behind_json_of_the_advertised_length(fields: Any) -> None:
    result = infer(FakeGateway(), document(**fields))

    head, tail = split(result)
    assert result.headers["content-type"] == "application/octet-stream"
    assert head["outputs"] == [
        {
            "name": "OUTPUT0",
            "datatype": "FP32",
            "shape": [2],
            "parameters": {"binary_data_size": 8},
        }
    ]
    assert tail == TWO


@pytest.mark.row("C26")
def test_a_listed_output_is_json_even_where_binary_is_the_default() -> None:
    body = document(parameters={"binary_data_output": True}, outputs=[{"name": "OUTPUT0"}])

    result = infer(FakeGateway(), body)

    assert result.json["outputs"][0]["data"] == [1.5, 2.5]


@pytest.mark.row("C26")
def test_an_empty_binary_output_needs_no_header() -> None:
    body = document(described(shape=[0], data=[]), parameters={"binary_data_output": True})

    result = infer(FakeGateway(), body)

    assert result.headers["content-type"] == "application/json"
    assert result.json["outputs"][0]["parameters"] == {"binary_data_size": 0}


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("99999999999", "inference header size should be in range (0, {size}), got: 99999999999"),
        ("-1", "inference header size should be in range (0, {size}), got: -1"),
        ("+5", "Unable to parse Inference-Header-Content-Length, got: +5"),
        ("1_0", "Unable to parse Inference-Header-Content-Length, got: 1_0"),
        ("\u00b2", "Unable to parse Inference-Header-Content-Length, got: \u00b2"),
        ("0x10", "Unable to parse Inference-Header-Content-Length, got: 0x10"),
        ("1e3", "Unable to parse Inference-Header-Content-Length, got: 1e3"),
        ("", "Unable to parse Inference-Header-Content-Length, got: "),
        ("5,6", "Unable to parse Inference-Header-Content-Length, got: 5,6"),
        ("9" * 5000, "Unable to parse Inference-Header-Content-Length, got: " + "9" * 64),
        ("12", "failed to parse the request JSON buffer"),
        ("{json-1}", "failed to parse the request JSON buffer"),
        ("{json+1}", "failed to parse the request JSON buffer"),
        ("{size}", "failed to parse the request JSON buffer"),
        ("{size+1}", "inference header size should be in range (0, {size}), got: {size+1}"),
        ("0", "input byte size mismatch for input 'raw_input'"),
    ],
)
@pytest.mark.row("C23")
def test_a_wrong_header_length_is_refused(header: str, said: str) -> None:
    text = json.dumps(document(described(data=..., parameters={"binary_data_size": 8}))).encode()
    text += b" " * (1 - len(text) % 2)  # an odd length is no row of FP32
    size = len(text) + 8
    for name, value in (("json", len(text)), ("size", size)):
        for change in (-1, 0, 1):
            word = f"{{{name}{change:+}}}" if change else f"{{{name}}}"
            header, said = (s.replace(word, str(value + change)) for s in (header, said))

    result = infer(FakeGateway(), text + TWO, headers={LENGTH: header})

    assert result.status_code == 400
    assert result.json["error"].startswith(said) or said in result.json["error"]


@pytest.mark.parametrize(
    ("size", "said"),
    [
        *(
            (size, "Unable to parse 'binary_data_size': attempt to access JSON non-unsigned")
            for size in (-1, 1.5, "8", 2**64, True, None)
        ),
        (2**63, "unexpected size for input 'INPUT0', expecting 9223372036854775800 additional"),
        (12, "unexpected size for input 'INPUT0', expecting 4 additional bytes for model"),
        (4, "unexpected additional input data for model 'identity'"),
        (0, "unexpected additional input data for model 'identity'"),
    ],
)
@pytest.mark.row("C23")
def test_a_wrong_binary_size_is_refused(size: Any, said: str) -> None:
    body = document(described(data=..., parameters={"binary_data_size": size}))

    result = infer_binary(FakeGateway(), body, TWO)

    assert result.status_code == 400
    assert result.json["error"].startswith(said)


@pytest.mark.parametrize("count", [3, 7])
def test_bytes_that_are_not_the_shapes_are_refused(count: int) -> None:
    """As in Triton's issue 7171, where such a request moved rows of others in its batch."""
    body = document(
        described(shape=[1, 2], data=..., parameters={"binary_data_size": 4 * count}),
        described(name="INPUT1", shape=[1, 2]),
    )

    result = infer_binary(FakeGateway(), body, bytes(4 * count), "batching")

    assert result.status_code == 400
    assert result.json["error"].endswith(
        f"input byte size mismatch for input 'INPUT0' for model 'batching'. "
        f"Expected 8, got {4 * count}"
    )


@pytest.mark.row("C23")
def test_binary_data_without_the_header_are_refused() -> None:
    body = document(described(data=..., parameters={"binary_data_size": 8}))

    result = infer(FakeGateway(), body)

    assert result.json["error"] == (
        "must specify valid 'Infer-Header-Content-Length' in request header and "
        "'binary_data_size' when passing inputs in binary data format"
    )


# ------------------------------------------------------------------------ raw


@pytest.mark.row("C24")
def test_a_raw_body_is_the_one_input_and_all_outputs_are_binary() -> None:
    gateway = FakeGateway()

    result = infer(gateway, TWO, headers={LENGTH: "0"})

    assert gateway.requests[0].body.inputs == [Tensor("INPUT0", FP32, [2], TWO)]
    assert split(result)[1] == TWO


@pytest.mark.row("C24")
def test_a_raw_body_fills_the_one_dynamic_dimension_of_a_batch_of_one() -> None:
    gateway = FakeGateway()

    infer(gateway, bytes(24), "rows", {LENGTH: "0"})

    assert gateway.requests[0].body.inputs[0].shape == [1, 3, 2]


@pytest.mark.parametrize(
    ("model", "body", "said"),
    [
        ("batching", bytes(8), "Raw request must only have 1 input (found 1) to be deduced but "),
        ("strings", b"text", "For BYTE datatype raw input 'INPUT0', the model must have input "),
        ("identity", bytes(13), "input byte size mismatch for input 'raw_input' for model "),
        ("rows", bytes(13), "input byte size mismatch for input 'raw_input' for model "),
    ],
)
@pytest.mark.row("C24")
def test_a_raw_body_that_leaves_room_for_guesses_is_refused(
    model: str, body: bytes, said: str
) -> None:
    result = infer(FakeGateway(), body, model, {LENGTH: "0"})

    assert result.status_code == 400
    assert result.json["error"].startswith(f"[request id: <id_unknown>] {said}")
