"""Checks of what callables return; the texts are PyTriton's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zmqtriton_extras.pytriton.binding import ResponseValidator
from zmqtriton_extras.pytriton.model_config.triton_model_config import TensorSpec
from zmqtriton_extras.pytriton.tests.bindings import model

OUTPUTS = [
    TensorSpec("sum", (-1, 2), np.float32),
    TensorSpec("text", (1,), np.bytes_),
    TensorSpec("flag", (1,), np.bool_),
]


def refusal(responses: Any, *, strict: bool = False, requests: int = 1, **fields: Any) -> str:
    """Return why the responses are refused, or "" if they are not."""
    validator = ResponseValidator(model(**{"outputs": OUTPUTS, **fields}), strict=strict)
    try:
        validator.validate_responses([None] * requests, responses)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.row("J08")
@pytest.mark.parametrize(
    "value",
    [
        np.zeros((1, 1), dtype)
        for dtype in (bool, np.int8, np.uint64, np.float16, "S3", "U3", np.float64)
    ]
    + [np.array([[b"x"]], object), np.zeros((0, 1), object), np.array(1.0)],
)
def test_arrays_of_all_types_and_shapes_pass(value: np.ndarray) -> None:
    assert "" == refusal([{"anything": value}])


def test_a_response_without_outputs_passes() -> None:
    assert "" == refusal([{}, {}], requests=2)
    assert "" == refusal([], requests=0)


@pytest.mark.row("J08")
@pytest.mark.parametrize("responses", [({},), {}, None, "x"])
def test_responses_are_a_list(responses: Any) -> None:
    assert (
        "Outputs returned by `simple` model callable must be list of response dicts with numpy "
        f"arrays. Got outputs={responses} instead."
    ) == refusal(responses)


@pytest.mark.row("J08")
def test_each_request_has_a_response() -> None:
    assert (
        "Number of outputs returned by `simple` inference callable (1) does not match number of "
        "requests (2) received from Triton."
    ) == refusal([{}], requests=2)


@pytest.mark.row("J08")
def test_a_response_is_a_dictionary() -> None:
    assert (
        "Outputs returned by `simple` model callable must be list of response dicts with numpy "
        "arrays. Got response=[1] instead."
    ) == refusal([[1]])


@pytest.mark.row("J08")
def test_names_are_strings() -> None:
    assert "Not all keys returned by `simple` model callable are string" == refusal(
        [{1: np.zeros(1)}]
    )


@pytest.mark.row("J08")
@pytest.mark.parametrize("value", [[1.0], 1.0, np.float32(1), None])
def test_values_are_arrays(value: Any) -> None:
    """PyTriton asks what is no array for its shape first, and fails."""
    assert "Not all values returned by `simple` model callable are numpy arrays" == refusal(
        [{"sum": value}]
    )


@pytest.mark.row("J08")
@pytest.mark.parametrize("dtype", [np.complex64, "datetime64[s]"])
def test_types_that_cannot_be_sent_are_refused(dtype: Any) -> None:
    kind = np.dtype(dtype).kind

    assert (
        "Only bool, numeric, string, unicode and object arrays are supported by Triton "
        "(dtype.kind: biufOSU). Returned `sum` for model `simple` "
        f"has `{kind}` dtype.kind."
    ) == refusal([{"sum": np.zeros(1, dtype)}])


@pytest.mark.row("J08")
def test_objects_are_byte_strings() -> None:
    assert (
        "Use string/byte-string instead of object for passing string in NumPy array from model "
        "`simple`."
    ) == refusal([{"text": np.array(["x"], object)}])
    assert (
        "Only bytes as objects dtype are supported by PyTriton. Returned `text` from `simple` "
        "has `<class 'int'>` type."
    ) == refusal([{"text": np.array([1], object)}])


@pytest.mark.row("J08")
@pytest.mark.parametrize(
    "response",
    [
        {"sum": np.zeros((3, 5, 2), np.float32)},
        {"text": np.array([[b"x"]], object)},
        {"text": np.array([[b"x"]])},
        {"text": np.array([["x"]])},
        {"flag": np.array([[True]])},
        {},
    ],
)
def test_strict_validation_passes_what_is_declared(response: Any) -> None:
    assert "" == refusal([response], strict=True)


@pytest.mark.parametrize("dtype", [object, bytes, np.object_])
def test_strict_validation_knows_all_types_of_strings(dtype: Any) -> None:
    outputs = [TensorSpec("text", (1,), dtype)]

    assert "" == refusal([{"text": np.array([[b"x"]])}], strict=True, outputs=outputs)


@pytest.mark.row("J08")
def test_strict_validation_counts_no_batch_where_there_is_none() -> None:
    response = {"sum": np.zeros((5, 2), np.float32)}

    assert "" == refusal([response], strict=True, batching=False)
    assert "has invalid shapes. Returned: (2,). Expected: (-1, 2)." in refusal(
        [response], strict=True
    )


@pytest.mark.row("J08")
@pytest.mark.parametrize(
    ("response", "text"),
    [
        (
            {"other": np.zeros(1)},
            "Returned output `other` is not defined in model config for model `simple`.",
        ),
        (
            {"sum": np.zeros((1, 1, 2))},
            "Returned output `sum` for model `simple` has invalid type. "
            "Returned: float64 (f). Expected: <class 'numpy.float32'>.",
        ),
        (
            {"sum": np.array([[[b"x", b"y"]]])},
            "Returned output `sum` for model `simple` has invalid type. "
            "Returned: |S1 (S). Expected: <class 'numpy.float32'>.",
        ),
        (
            {"sum": np.zeros((1, 1, 1, 2), np.float32)},
            "Returned output `sum` for model `simple` has invalid shapes. "
            "Returned: (1, 1, 2). Expected: (-1, 2).",
        ),
        (
            {"sum": np.zeros((1, 1, 3), np.float32)},
            "Returned output `sum` for model `simple` has invalid shapes at one or more "
            "positions. Returned: (1, 3). Expected: (-1, 2).",
        ),
    ],
)
def test_strict_validation_refuses_what_is_not_declared(response: Any, text: str) -> None:
    assert text == refusal([response], strict=True)
    assert "" == refusal([response])
