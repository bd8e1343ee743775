from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refusal
from zmqtriton_floor.datatypes import BY_NAME
from zmqtriton_floor.errors import InvalidArgument, ZmqTritonError
from zmqtriton_floor.wire import SEQUENCE_END, SEQUENCE_START, RequestBody
from zmqtriton_frontends.grpc_api.inference.convert import (
    parse,
    read_content,
    read_contents,
    read_options,
    read_wishes,
)
from zmqtriton_frontends.inference.admission import SchedulingOptions
from zmqtriton_frontends.inference.client_regions import RegionSlice
from zmqtriton_protos import message

REQUEST = message("inference.ModelInferRequest")
INPUT = REQUEST.InferInputTensor
ANY_MODEL: Any = None


def request_of(*inputs: Any, raw: tuple[bytes, ...] = (), **fields: Any) -> Any:
    return REQUEST(model_name="m", inputs=inputs, raw_input_contents=raw, **fields)


def body_of(request: Any) -> RequestBody:
    return read_content(request, request.raw_input_contents, True, ANY_MODEL).body


# ------------------------------------------------------------------ typed contents


@pytest.mark.row("D21")
@pytest.mark.parametrize(
    ("datatype", "field", "values", "expected"),
    [
        ("BOOL", "bool_contents", [True, False, True], b"\1\0\1"),
        ("INT8", "int_contents", [-1, 127], struct.pack("<2b", -1, 127)),
        ("INT16", "int_contents", [-2, 32767], struct.pack("<2h", -2, 32767)),
        ("INT32", "int_contents", [-3, 2**31 - 1], struct.pack("<2i", -3, 2**31 - 1)),
        ("INT64", "int64_contents", [-4, 2**63 - 1], struct.pack("<2q", -4, 2**63 - 1)),
        ("UINT8", "uint_contents", [0, 255], b"\0\xff"),
        ("UINT16", "uint_contents", [1, 65535], struct.pack("<2H", 1, 65535)),
        ("UINT32", "uint_contents", [2, 2**32 - 1], struct.pack("<2I", 2, 2**32 - 1)),
        ("UINT64", "uint64_contents", [3, 2**64 - 1], struct.pack("<2Q", 3, 2**64 - 1)),
        ("FP32", "fp32_contents", [0.1, -2.5], struct.pack("<2f", 0.1, -2.5)),
        ("FP64", "fp64_contents", [0.1, -2.5], struct.pack("<2d", 0.1, -2.5)),
        ("BYTES", "bytes_contents", [b"ab", b"", b"\0"], b"\2\0\0\0ab\0\0\0\0\1\0\0\0\0"),
    ],
)
def test_each_datatype_may_be_typed(
    datatype: str, field: str, values: list[Any], expected: bytes
) -> None:
    tensor = INPUT(name="A", datatype=datatype, shape=[len(values)], contents={field: values})

    body = body_of(request_of(tensor))

    assert body.inputs == [("A", BY_NAME[datatype].number, [len(values)], expected)]


def test_values_too_large_for_a_narrow_datatype_keep_their_low_bytes_as_in_triton() -> None:
    tensor = INPUT(name="A", datatype="INT8", contents={"int_contents": [257, -129]})

    assert read_contents(tensor, "m") == b"\x01\x7f"


@pytest.mark.row("D20")
@pytest.mark.parametrize(
    ("datatype", "contents", "text"),
    [
        (
            "FP32",
            {"int_contents": [1]},
            "unexpected explicit tensor data for input tensor 'A' for model 'm' of type 'INT32', "
            "expected datatype 'FP32'",
        ),
        (
            "FP16",
            {"fp32_contents": [1.0]},
            "unexpected explicit tensor data for input tensor 'A' for model 'm' of type 'FP32', "
            "expected datatype 'FP16'",
        ),
        (
            "FLOAT",
            {"fp32_contents": [1.0]},
            "unexpected explicit tensor data for input tensor 'A' for model 'm' of type 'FP32', "
            "expected datatype '<invalid>'",
        ),
        (
            "INT32",
            {"int_contents": [1], "uint_contents": [1]},
            "unexpected explicit tensor data for input tensor 'A' for model 'm', binary data was "
            "already supplied.",
        ),
    ],
)
def test_contents_of_another_type_are_refused(datatype: str, contents: Any, text: str) -> None:
    tensor = INPUT(name="A", datatype=datatype, shape=[1], contents=contents)

    assert text == refusal(InvalidArgument, body_of, request_of(tensor))


@pytest.mark.slow
@given(st.lists(st.floats(width=32)))
def test_typed_floats_are_the_raw_ones_bit_by_bit(values: list[float]) -> None:
    typed = INPUT(name="A", datatype="FP32", contents={"fp32_contents": values})

    assert read_contents(typed, "m") == np.array(values, np.float32).tobytes()


# ------------------------------------------------------------------------ bodies


def test_an_unknown_datatype_is_left_to_the_check_against_the_model() -> None:
    body = body_of(request_of(INPUT(name="A", datatype="FLOAT", shape=[1]), raw=(b"",)))

    assert body.inputs[0].datatype == 0


def test_an_input_may_have_no_elements() -> None:
    body = body_of(request_of(INPUT(name="A", datatype="UINT8", shape=[2, 0]), raw=(b"",)))

    assert [2, 0] == body.inputs[0].shape


REGION = {"string_param": "r"}
SIZE = {"int64_param": 4}
A = {"name": "A", "datatype": "UINT8", "shape": [1]}


@pytest.mark.row("D20", "D24")
@pytest.mark.parametrize(
    ("tensor", "raw", "error", "text"),
    [
        (
            {**A, "contents": {"uint_contents": [1]}},
            b"a",
            InvalidArgument,
            "contents field must not be specified when using raw_input_contents for 'A' for "
            "model 'm'",
        ),
        (
            A,
            None,
            InvalidArgument,
            "unable to find data for input tensor 'A' for model 'm' in request.",
        ),
        (
            {**A, "shape": [-1]},
            b"a",
            InvalidArgument,
            "[request id: <id_unknown>] All input dimensions should be specified for input 'A' "
            "for model 'm', got [-1]",
        ),
        (
            {**A, "parameters": {"shared_memory_region": {"int64_param": 1}}},
            b"a",
            InvalidArgument,
            "invalid value type for 'shared_memory_region' parameter for tensor 'A', expected "
            "string_param.",
        ),
        (
            {**A, "parameters": {"shared_memory_byte_size": SIZE}},
            b"a",
            InvalidArgument,
            "'shared_memory_byte_size' can not be specified without 'shared_memory_region' "
            "parameter for tensor 'A'",
        ),
        (
            {**A, "parameters": {"shared_memory_region": REGION}},
            None,
            InvalidArgument,
            "'shared_memory_byte_size' must be specified along with 'shared_memory_region' "
            "parameter for tensor 'A'",
        ),
        (
            {
                **A,
                "parameters": {"shared_memory_region": REGION, "shared_memory_byte_size": SIZE},
                "contents": {"uint_contents": [1]},
            },
            None,
            InvalidArgument,
            "unexpected 'content' provided when using shared memory for input tensor 'A' for "
            "model 'm'",
        ),
    ],
)
def test_inputs_without_data_of_their_own_are_refused(
    tensor: Any, raw: bytes | None, error: type[ZmqTritonError], text: str
) -> None:
    request = request_of(INPUT(**tensor), raw=() if raw is None else (raw,))

    with pytest.raises(error) as caught:
        body_of(request)

    assert (type(caught.value), caught.value.text) == (error, text)


def test_more_raw_contents_than_inputs_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="unexpected additional input data for model 'm'"):
        body_of(request_of(INPUT(**A), raw=(b"a", b"b")))


@pytest.mark.parametrize(
    ("parameters", "error", "text"),
    [
        (
            {"classification": {"string_param": "3"}},
            InvalidArgument,
            "invalid value type for 'classification' parameter, expected int64_param",
        ),
        (
            {"classification": {"int64_param": 0}},
            InvalidArgument,
            "invalid value for 'classification' parameter, expected >= 0",
        ),
        (
            {
                "classification": {"int64_param": 1},
                "shared_memory_region": REGION,
                "shared_memory_byte_size": SIZE,
            },
            InvalidArgument,
            "output can't set both 'shared_memory_region' and 'classification'",
        ),
    ],
)
def test_outputs_asked_for_in_another_form_are_refused(
    parameters: Any, error: type[ZmqTritonError], text: str
) -> None:
    request = request_of(outputs=[{"name": "O", "parameters": parameters}])

    with pytest.raises(error) as caught:
        read_wishes(request)

    assert (type(caught.value), caught.value.text) == (error, text)


def test_classes_may_be_wanted_of_some_outputs() -> None:
    request = request_of(
        outputs=[
            {"name": "O", "parameters": {"classification": {"int64_param": 3}}},
            {"name": "P"},
        ]
    )

    assert ({}, {"O": 3}) == read_wishes(request)


@pytest.mark.row("D24")
def test_tensors_in_shared_memory_are_places_until_they_are_read() -> None:
    place = {"shared_memory_region": REGION, "shared_memory_byte_size": SIZE}
    behind = {**place, "shared_memory_offset": {"int64_param": -8}}
    request = request_of(
        INPUT(**{**A, "name": "B", "parameters": place}),
        INPUT(**A),
        raw=(b"a",),
        outputs=[{"name": "O", "parameters": behind}, {"name": "P"}],
    )

    body, (places, _) = body_of(request), read_wishes(request)

    assert [RegionSlice("r", 0, 4), b"a"] == [tensor.data for tensor in body.inputs]
    assert ["O", "P"] == body.outputs
    assert {"O": RegionSlice("r", 2**64 - 8, 4)} == places


# -------------------------------------------------------------------- parameters


@pytest.mark.row("D23")
def test_parameters_of_the_scheduler_do_not_reach_the_model() -> None:
    request = request_of(
        parameters={
            "sequence_id": {"int64_param": 9},
            "sequence_start": {"bool_param": True},
            "sequence_end": {"bool_param": True},
            "priority": {"uint64_param": 2},
            "timeout": {"int64_param": 300},
            "triton_enable_empty_final_response": {"bool_param": True},
            "a": {"int64_param": -1},
            "b": {"bool_param": False},
            "c": {"string_param": ""},
            "d": {"double_param": 0.5},
        }
    )

    plain, options = read_options(request)

    assert plain == {"a": -1, "b": False, "c": "", "d": 0.5}
    assert options == SchedulingOptions(SEQUENCE_START | SEQUENCE_END, 2, 300, 0, 9)


def test_without_parameters_only_the_deadline_is_asked_of_the_scheduler() -> None:
    assert read_options(request_of()) == ({}, SchedulingOptions())


@pytest.mark.parametrize(
    ("parameter", "correlation"),
    [
        ({"int64_param": 5}, 5),
        ({"int64_param": -1}, 2**64 - 1),
        ({"string_param": "x"}, "x"),
    ],
)
def test_a_sequence_id_is_an_unsigned_integer_or_a_string(parameter: Any, correlation: Any) -> None:
    _, options = read_options(request_of(parameters={"sequence_id": parameter}))

    assert options.correlation == correlation


@pytest.mark.row("D23")
@pytest.mark.parametrize(
    ("key", "parameter", "text"),
    [
        (
            "sequence_id",
            {"bool_param": True},
            "invalid value type for 'sequence_id' parameter, expected int64_param or string_param.",
        ),
        ("sequence_id", {"string_param": "x" * 129}, None),
        (
            "sequence_start",
            {"int64_param": 1},
            "invalid value type for 'sequence_start' parameter, expected bool_param.",
        ),
        (
            "sequence_end",
            {},
            "invalid value type for 'sequence_end' parameter, expected bool_param.",
        ),
        (
            "priority",
            {"string_param": "1"},
            "invalid value type for 'priority' parameter, expected int64_param or uint64_param.",
        ),
        (
            "priority",
            {"int64_param": -1},
            "invalid value for 'priority', expected value >= 0.",
        ),
        (
            "timeout",
            {"uint64_param": 1},
            "invalid value type for 'timeout' parameter, expected int64_param.",
        ),
        ("timeout", {"int64_param": -1}, "invalid value for 'timeout', expected value >= 0."),
        (
            "triton_enable_empty_final_response",
            {"int64_param": 1},
            "invalid value type for 'triton_enable_empty_final_response' parameter, expected "
            "bool_param.",
        ),
        (
            "triton_other",
            {"int64_param": 1},
            "parameter keys starting with 'triton_' are reserved for Triton usage. Only the "
            "following keys starting with 'triton_' are allowed: "
            "triton_enable_empty_final_response",
        ),
        (
            "n" * 1025,
            {"int64_param": 1},
            "a parameter's name cannot be longer than 1024 characters",
        ),
        (
            "own",
            {"uint64_param": 1},
            "invalid value type for 'own' parameter, expected int64_param, bool_param, or "
            "string_param.",
        ),
        (
            "own",
            {},
            "invalid value type for 'own' parameter, expected int64_param, bool_param, or "
            "string_param.",
        ),
    ],
)
def test_parameters_of_the_wrong_type_are_refused(key: str, parameter: Any, text: str) -> None:
    request = request_of(parameters={key: parameter})

    assert text is None or refusal(InvalidArgument, read_options, request) == text


def test_a_priority_beyond_63_bits_is_the_lowest_there_is() -> None:
    _, options = read_options(request_of(parameters={"priority": {"uint64_param": 2**64 - 1}}))

    assert options.priority == 2**63 - 1


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x05ab", b"\x0a\x01\xff"])
def test_bytes_that_are_no_message_are_the_clients_mistake(data: bytes) -> None:
    assert "failed to parse the request as inference.ModelInferRequest" == refusal(
        InvalidArgument, parse, REQUEST, data
    )
