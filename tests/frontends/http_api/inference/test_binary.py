"""Bodies with binary tensors, compressed bodies, and what requests say."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from types import SimpleNamespace
from typing import Any

import pytest
from falcon.testing import Result
from hypothesis import given
from hypothesis import strategies as st

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
from zmqtriton_floor import wire
from zmqtriton_floor.datatypes import BY_NAME
from zmqtriton_floor.errors import InvalidArgument, NotFound, Unsupported
from zmqtriton_floor.wire import Tensor
from zmqtriton_frontends.http_api.inference import json_documents
from zmqtriton_frontends.http_api.inference.infer import inflate
from zmqtriton_frontends.http_api.inference.infer_request import OutputForm, read
from zmqtriton_frontends.http_api.inference.response_encoding import ResponseFormat
from zmqtriton_frontends.http_api.inference.tensor_data import Tail
from zmqtriton_frontends.inference.admission import SchedulingOptions
from zmqtriton_frontends.process.codecs import choose, deflate

# ------------------------------------------------------------------------------ binary
# The binary tensor extension and raw requests, from the bytes of a body to those of a response.


def split(result: Result) -> tuple[dict[str, Any], bytes]:
    length = int(result.headers[LENGTH])
    return json.loads(result.content[:length]), result.content[length:]


# --------------------------------------------------------------------- binary
@pytest.mark.row("C23")
def test_binary_inputs_are_taken_in_the_order_of_the_inputs(gateway: FakeGateway) -> None:
    entries = [
        described(name=name, shape=[1, 2], data=..., parameters={"binary_data_size": 8})
        for name in ("INPUT1", "INPUT0")
    ]

    result = infer_binary(gateway, document(*entries), TWO + bytes(8), "batching")

    assert result.status_code == 200, result.text
    data = {t.name: bytes(t.data) for t in gateway.requests[0].body.inputs}
    assert data == {"INPUT1": TWO, "INPUT0": bytes(8)}


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

    assert infer(FakeGateway(), body).json["outputs"][0]["data"] == [1.5, 2.5]


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

    assert (400, said) == (result.status_code, result.json["error"][: len(said)])


@pytest.mark.row("C47")
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

    assert infer(FakeGateway(), body).json["error"] == (
        "must specify valid 'Infer-Header-Content-Length' in request header and "
        "'binary_data_size' when passing inputs in binary data format"
    )


# ------------------------------------------------------------------------ raw
@pytest.mark.row("C24")
def test_a_raw_body_is_the_one_input_and_all_outputs_are_binary(gateway: FakeGateway) -> None:
    result = infer(gateway, TWO, headers={LENGTH: "0"})

    assert gateway.requests[0].body.inputs == [Tensor("INPUT0", FP32, [2], TWO)]
    assert split(result)[1] == TWO


@pytest.mark.row("C24")
def test_a_raw_body_fills_the_one_dynamic_dimension_of_a_batch_of_one(gateway: FakeGateway) -> None:
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


# ------------------------------------------------------------------------- compression


TEXT = json.dumps(document()).encode()


@pytest.mark.parametrize(
    ("coding", "data"),
    [
        ("gzip", gzip.compress(TEXT, mtime=0)),
        ("GZIP ", gzip.compress(TEXT, mtime=0)),
        ("deflate", zlib.compress(TEXT)),
        ("identity", TEXT),
        ("", TEXT),
    ],
)
def test_a_body_may_be_compressed(coding: str, data: bytes) -> None:
    result = infer(FakeGateway(), data, headers={"Content-Encoding": coding})

    assert result.status_code == 200, result.text


@pytest.mark.parametrize("coding", ["br", "gzip, gzip", "zstd", "x"])
@pytest.mark.row("C30")
def test_another_coding_is_refused_with_those_that_are_not(coding: str) -> None:
    result = infer(FakeGateway(), TEXT, headers={"Content-Encoding": coding})

    assert (result.status_code, result.json) == (501, {"error": "Unsupported compression type"})
    assert result.headers["accept-encoding"] == "gzip, deflate"


def inflated(data: bytes, coding: str, max_bytes: int) -> bytes | bytearray | memoryview:
    return asyncio.run(inflate(data, coding, max_bytes, object(), hold=lambda size: None))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"zzzz",
        gzip.compress(TEXT, mtime=0)[:-9],
        gzip.compress(TEXT, mtime=0) + b"x",
        gzip.compress(TEXT, mtime=0) * 2,
        zlib.compress(TEXT),
    ],
    ids=["empty", "none", "truncated", "garbage behind", "two members", "deflate"],
)
def test_data_that_are_not_exactly_one_stream_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidArgument, match="failed to decompress the request body as gzip"):
        inflated(data, "gzip", 1 << 20)


@pytest.mark.slow
@pytest.mark.row("C31")
def test_inflating_stops_at_the_limit() -> None:
    bomb = gzip.compress(bytes(64 << 20))

    assert len(inflated(gzip.compress(bytes(1000)), "gzip", 1000)) == 1000
    with pytest.raises(InvalidArgument, match="exceeds the maximum allowed input size of 1000 "):
        inflated(bomb, "gzip", 1000)


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("gzip", "gzip"),
        ("deflate", "deflate"),
        ("gzip, deflate", "gzip"),
        ("gzip;q=0.5, deflate;q=0.8", "deflate"),
        ("gzip;q=0", ""),
        ("gzip;q=0.5, identity", ""),
        ("br, zstd", ""),
        ("GZip ; Q=1", "gzip"),
        ("gzip;q=x", ""),
        ("gzip;q=nan", ""),
        ("*", ""),
        ("", ""),
        (";q=" * 400, ""),
    ],
)
@pytest.mark.row("C30")
def test_the_best_coding_that_a_client_accepts_is_chosen(accepted: str, coding: str) -> None:
    assert choose(accepted) == coding


@pytest.mark.row("C30")
def test_the_header_length_of_a_compressed_response_is_that_of_the_json() -> None:
    body = document(parameters={"binary_data_output": True})

    result = infer(FakeGateway(), body, headers={"Accept-Encoding": "gzip"})

    whole = gzip.decompress(result.content)
    length = int(result.headers["Inference-Header-Content-Length"])
    assert json.loads(whole[:length])["outputs"][0]["parameters"] == {"binary_data_size": 8}
    assert len(whole) == length + 8


def test_what_is_deflated_comes_back() -> None:
    assert zlib.decompress(deflate([TEXT], "deflate")) == TEXT
    with pytest.raises(Unsupported):
        inflated(TEXT, "br", 1000)


# ----------------------------------------------------------------------- infer request


SCALARS: Any = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
)


VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=6)


def some(**fields: Any) -> Any:
    """An object with some of these fields, each as it should be or anything at all."""
    return st.fixed_dictionaries(
        {}, optional={key: value | VALUES for key, value in fields.items()}
    )


INPUT = some(
    name=st.just("A"),
    datatype=st.sampled_from([*BY_NAME]),
    shape=st.lists(st.integers(0, 4), max_size=3),
    data=st.lists(st.integers(0, 1), max_size=4) | st.lists(SCALARS, max_size=4),
    parameters=some(binary_data_size=st.integers(0, 8), shared_memory_region=st.just("r")),
)


DOCUMENT = some(
    id=st.just("1"),
    parameters=some(
        sequence_id=st.integers(0, 9),
        sequence_start=st.booleans(),
        priority=st.integers(0, 9),
        timeout=st.integers(0, 9),
        binary_data_output=st.booleans(),
        own=SCALARS,
    ),
    inputs=st.lists(INPUT | VALUES, max_size=3),
    outputs=st.lists(some(name=st.just("B"), parameters=some(binary_data=st.booleans()))),
)


@pytest.mark.slow
@given(DOCUMENT | VALUES, st.none() | st.binary(max_size=16))
def test_any_document_is_refused_or_becomes_what_the_wire_can_carry(
    document: Any, tail: bytes | None
) -> None:
    try:
        request, options, _ = read(document, None if tail is None else Tail(memoryview(tail), "m"))
    except (InvalidArgument, NotFound, Unsupported):
        return

    check_wire(request, options)


def check_wire(request: wire.RequestBody, options: SchedulingOptions) -> None:
    body = wire.decode_request(wire.encode_body(request))
    assert [bytes(t.data) for t in request.inputs] == [t.data for t in body.inputs]
    row = wire.Request(1, 1, "", -1, *options[:4], 0, 0, options.correlation)
    assert wire.decode(wire.encode(wire.Infer([row]))) == wire.Infer([row])


#: Texts that only some parsers take: lone surrogates, numbers beyond 64 bits, NaN.
ODD = SCALARS | st.integers() | st.sampled_from(["\ud800", "\udfff\ud800", 10**400, float("nan")])


ODD_INPUT = st.fixed_dictionaries(
    {
        "name": st.just("A"),
        "datatype": st.sampled_from([*BY_NAME]),
        "shape": st.lists(st.integers(0, 3), max_size=2),
        "data": st.recursive(ODD, lambda inner: st.lists(inner, max_size=4), max_leaves=6),
    }
)


@pytest.mark.slow
@given(st.lists(ODD_INPUT, min_size=1, max_size=2), ODD)
def test_any_text_is_refused_or_becomes_what_the_wire_can_carry(inputs: Any, value: Any) -> None:
    text = json.dumps({"inputs": inputs, "parameters": {"own": value}, "id": value}).encode()

    try:
        request, options, _ = read(json_documents.parse(text), None)
    except InvalidArgument:
        return

    check_wire(request, options)


@pytest.mark.parametrize(
    ("size", "is_binary", "accepted", "takes_long"),
    [
        (600 << 10, True, "identity", False),
        (600 << 10, True, None, False),
        (2 << 20, True, "gzip", True),
        (2 << 20, True, None, False),
        (100 << 10, False, None, True),
        (10 << 10, False, "gzip", False),
    ],
)
def test_a_thread_writes_much_json_and_compresses_much(
    size: int, is_binary: bool, accepted: str | None, takes_long: bool
) -> None:
    model: Any = SimpleNamespace(name="m", version=1, answers={})
    form = ResponseFormat(model, "", OutputForm({}, default=is_binary), accepted)
    response = wire.ResponseBody({}, [Tensor("OUT", FP32, [size // 4], bytes(size))])

    assert takes_long == (form.encode(response) is None)
