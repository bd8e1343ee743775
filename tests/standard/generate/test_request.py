from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.frontends.fake_gateway import tensor_config
from tests.frontends.http_api.inference.test_binary import ODD, ODD_INPUT, check_wire
from tests.support import refusals
from zmqtriton.config.pbtxt import parse_text
from zmqtriton_floor.datatypes import BY_NAME, Datatype
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.signature import Input, Signature
from zmqtriton_floor.tensors import decode_bytes
from zmqtriton_floor.wire import RequestBody, Tensor
from zmqtriton_frontends.inference.admission import SchedulingOptions
from zmqtriton_standard import generate
from zmqtriton_standard.generate import checks
from zmqtriton_standard.generate.request import read, read_bytes, read_text

FP32, INT32, STRING = (BY_NAME[name].number for name in ("FP32", "INT32", "BYTES"))


def inputs(*configs: dict[str, Any], max_batch_size: int = 0) -> Any:
    config = {"name": "m", "max_batch_size": max_batch_size, "input": list(configs)}
    return Signature(config).inputs


TEXT = inputs(tensor_config("text_input", "STRING", [1]), tensor_config("N", "INT32", [1]))


def refusal(document: Any, declarations: Any = TEXT) -> str:
    return refusals.refusal(InvalidArgument, read, document, declarations)


def shape(value: Any, dims: list[int], max_batch_size: int = 0) -> list[int]:
    declarations = inputs(tensor_config("X", "FP32", dims), max_batch_size=max_batch_size)
    return read({"X": value}, declarations).inputs[0].shape


@pytest.mark.row("C60")
def test_keys_that_name_inputs_are_tensors_and_others_parameters() -> None:
    body = read(
        {"id": "7", "text_input": "hi", "stream": True, "parameters": {"N": 3, "t": 0.5}}, TEXT
    )

    assert body == RequestBody(
        "7",
        {"id": "7", "stream": True, "t": 0.5},
        [],
        [
            Tensor("text_input", STRING, [1], b"\x02\0\0\0hi"),
            Tensor("N", INT32, [1], b"\x03\0\0\0"),
        ],
    )


def test_null_is_an_optional_input_that_is_not_given() -> None:
    optional = {**tensor_config("EXTRA", "STRING", [1]), "optional": True}
    declarations = inputs(tensor_config("X", "FP32", [1]), optional)

    body = read({"X": 1, "EXTRA": None}, declarations)
    nested = read({"X": 1, "parameters": {"EXTRA": None}}, declarations)

    assert body == nested == RequestBody("", {}, [], read({"X": 1}, declarations).inputs)
    assert refusal({"X": None}, declarations) == "input 'X' is required and cannot be null"
    assert "'EXTRA' already exists" in refusals.refusal(
        InvalidArgument, read_text, b'{"EXTRA": "a", "EXTRA": null}', declarations
    )


def test_objects_and_lists_within_parameters_are_parameters_with_their_json() -> None:
    nested = {"stop": ["a", "\u00e9"], "format": {"type": "json", "of": [1, None, {"x": 0.5}]}}

    body = read({"parameters": {**nested, "N": 3}}, TEXT)

    assert body.parameters == {
        "stop": '["a","\u00e9"]',
        "format": '{"type":"json","of":[1,null,{"x":0.5}]}',
    }
    assert [tensor.name for tensor in body.inputs] == ["N"]
    assert "parameter 'stop' has invalid type" in refusal(nested)


def test_names_that_mean_something_to_infer_are_plain_parameters_here() -> None:
    body = read({"priority": 3, "timeout": "soon", "sequence_id": 5}, TEXT)

    assert body.parameters == {"priority": 3, "timeout": "soon", "sequence_id": 5}


@pytest.mark.parametrize(
    ("value", "dims", "expected"),
    [
        (1.5, [1], [1]),
        ([1.5], [1], [1]),
        ([1, 2, 3, 4], [-1], [4]),
        (1, [-1], [1]),
        ([1, 2, 3, 4, 5, 6], [2, 3], [2, 3]),
        ([1, 2, 3, 4, 5, 6], [-1, 3], [2, 3]),
        ([1, 2, 3, 4, 5, 6], [3, -1], [3, 2]),
        ([1, 2, 3, 4, 5, 6], [-1, 3, -1], [1, 3, 2]),
        ([1, 2, 3, 4], [-1, -1], [1, 4]),
    ],
)
@pytest.mark.row("C61")
def test_the_innermost_dimension_of_any_length_takes_what_is_left(
    value: Any, dims: list[int], expected: list[int]
) -> None:
    assert expected == shape(value, dims)


@pytest.mark.parametrize(
    ("value", "dims"),
    [
        ([1, 2], [1]),
        ([1, 2, 3], [2]),
        ([1, 2], [-1, 3]),
        ([[1, 2], [3, 4]], [3, -1]),
        ([[1, 2], [3, 4]], [3, 2, 2]),
        ([[1, 2], [3]], [2, 3]),
        ([[1, 2], 3], [3, 3]),
        ([[[1, 2]]], [2, 3]),
    ],
)
@pytest.mark.row("C61")
def test_a_number_of_elements_that_fits_no_shape_is_refused(value: Any, dims: list[int]) -> None:
    text = refusal({"X": value}, inputs(tensor_config("X", "FP32", dims)))

    assert text == "The schema can not convert input 'X' to tensor with proper shape"


@pytest.mark.row("C61")
def test_an_empty_array_is_a_dimension_of_nothing() -> None:
    declarations = inputs(tensor_config("X", "FP32", [-1]))

    assert read({"X": []}, declarations).inputs == [Tensor("X", FP32, [0], b"")]


@pytest.mark.row("C60")
def test_an_input_called_parameters_makes_the_key_ambiguous() -> None:
    declarations = inputs(tensor_config("parameters", "STRING", [1]))

    assert refusal({"parameters": "x"}, declarations) == (
        "Keyword 'parameters' for nested schema also given as input tensor name"
    )


@pytest.mark.parametrize("value", [None, [1], {"a": 1}])
def test_a_parameter_is_no_structure(value: Any) -> None:
    text = "parameter 'k' has invalid type. It should be either 'int', 'bool', or 'string'. "
    text += f"The inputs of this model are: {', '.join(TEXT)}."

    assert refusal({"k": value}) == text


def test_a_parameter_is_not_null() -> None:
    text = refusal({"parameters": {"k": None}})

    assert text.startswith("Converting keyword: 'parameters': parameter 'k' has invalid type.")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '{"parameters": {"N": 1, "N": 2}}',
            "Converting keyword: 'parameters': [request id: <id_unknown>] input 'N' already exists "
            "in request",
        ),
        (
            '{"N": 1, "parameters": {"x": null}, "N": 2}',
            "Converting keyword: 'parameters': parameter 'x' has invalid type. It should be either "
            f"'int', 'bool', or 'string'. The inputs of this model are: {', '.join(TEXT)}.",
        ),
        ('["text_input", "text_input"]', "attempt to get members for non-object"),
    ],
)
def test_members_are_judged_in_the_order_of_the_text(text: str, said: str) -> None:
    assert said == refusals.refusal(InvalidArgument, read_text, text.encode(), TEXT)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([1], "attempt to get members for non-object"),
        ({"id": 7}, "Unable to parse 'id': attempt to access JSON non-string as string"),
        (
            {"parameters": 1},
            "Expected JSON object for keyword: 'parameters': attempt to access JSON non-object as "
            "object",
        ),
    ],
)
def test_document_id_and_parameters_have_their_types(document: Any, said: str) -> None:
    assert said == refusal(document)


@pytest.mark.parametrize(
    ("document", "part"),
    [
        ({"parameters": {"parameters": {}}}, "parameter 'parameters' has invalid type"),
        ({str(n): n for n in range(1025)}, "more than 1024 parameters"),
    ],
    ids=["nested twice", "too many"],
)
def test_parameters_nest_once_and_are_bounded_in_number(document: Any, part: str) -> None:
    assert part in refusal(document)


PICTURE = b"\xff\xd8\0\x80"
IN_BASE64 = {"b64": "/9gAgA=="}


@pytest.mark.parametrize(
    ("value", "dims", "expected_shape", "elements"),
    [
        (IN_BASE64, [1], [1], [PICTURE]),
        ([IN_BASE64, "text"], [-1], [2], [PICTURE, b"text"]),
        ([[IN_BASE64], [IN_BASE64]], [2, 1], [2, 1], [PICTURE, PICTURE]),
        ({"b64": ""}, [1], [1], [b""]),
    ],
)
def test_base64_is_the_bytes_of_a_string_input(
    value: Any, dims: list[int], expected_shape: list[int], elements: list[bytes]
) -> None:
    (tensor,) = read({"X": value}, inputs(tensor_config("X", "STRING", dims))).inputs

    assert (expected_shape, elements) == (tensor.shape, decode_bytes(tensor.data))


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ({"b64": "/9gAgA"}, "input 'text_input' has invalid base64 in 'b64': Incorrect padding"),
        ({"b64": "/9gA gA="}, "input 'text_input' has invalid base64 in 'b64'"),
        ({"b64": 1}, "non-string"),
        ({"b64": "", "x": 1}, "non-string"),
        ({}, "non-string"),
    ],
)
def test_what_is_no_base64_is_refused(value: Any, part: str) -> None:
    assert part in refusal({"text_input": value})


@pytest.mark.parametrize(
    ("names", "said"), [((), "this model's are: none"), (("A", "B"), "this model's are: A, B")]
)
def test_a_body_needs_one_input_of_bytes(names: tuple[str, ...], said: str) -> None:
    number = tensor_config("N", "INT32", [1])
    declarations = inputs(*(tensor_config(name, "STRING", [1]) for name in names), number)

    with pytest.raises(InvalidArgument, match=said):
        read_bytes(PICTURE, declarations)


@pytest.mark.slow
@given(st.sampled_from([*BY_NAME.values()]), ODD_INPUT, ODD)
def test_any_text_is_refused_or_becomes_what_the_wire_can_carry(
    datatype: Datatype, tensor: Any, value: Any
) -> None:
    text = json.dumps({"A": tensor["data"], "own": value}).encode()
    declared = {"A": Input("A", datatype.number, (-1,), optional=False, fixed_size=None)}

    try:
        request = read_text(text, declared)
    except InvalidArgument:
        return

    check_wire(request, SchedulingOptions())


def test_outputs_behind_members_of_their_name_have_a_warning() -> None:
    outputs = "".join(
        f'output {{ name: "{name}" data_type: TYPE_FP32 dims: [ 1 ] }}\n'
        for name in ("id", "text", "model_name")
    )
    config = parse_text(outputs, "config.pbtxt")

    found = {each.field: str(each.text) for each in checks.warnings(config)}

    assert [("output", 0, "name"), ("output", 2, "name")] == [*found]
    assert "generate hides output 'id' behind its own member" in found["output", 0, "name"]
    assert generate.ADDON.offers["diagnosis.config"] == ".checks:warnings"
