"""Decorators that group and ConstantPadder, as in PyTriton 0.7.0 but where it says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from zmqtriton_extras.pytriton.decorators import (
    ConstantPadder,
    batch,
    group_by_keys,
    group_by_values,
    triton_context,
)
from zmqtriton_extras.pytriton.exceptions import PyTritonRuntimeError
from zmqtriton_extras.pytriton.proxy.types import Request
from zmqtriton_extras.pytriton.tests.bindings import array, plain, request


@pytest.mark.row("J23")
def test_requests_with_the_same_inputs_are_executed_together_and_keep_their_order() -> None:
    seen = []

    @group_by_keys
    @batch
    def infer(**inputs: np.ndarray) -> Any:
        seen.append(plain(inputs))
        return {"sum": sum(inputs.values())}

    responses = infer(
        [
            request(b=[[1]], a=[[2]]),
            request(a=[[3]]),
            request(a=[[4]], b=[[5]]),
            request(b=[[7]]),
            request(a=[[8]]),
        ]
    )

    assert [{"a": [[3], [8]]}, {"b": [[1], [5]], "a": [[2], [4]]}, {"b": [[7]]}] == seen
    assert [[[3]], [[3]], [[9]], [[7]], [[8]]] == [plain(r["sum"]) for r in responses]


@pytest.mark.row("J23")
def test_a_group_with_too_few_responses_is_refused() -> None:
    """PyTriton leaves responses out."""
    infer = group_by_keys(lambda requests: [{} for _ in requests][1:])

    with pytest.raises(PyTritonRuntimeError) as caught:
        infer([request(a=[[1]]), request(a=[[2]])])

    assert "The function below @group_by_keys returned 1 responses to 2 requests." == str(
        caught.value
    )


@pytest.mark.row("J23", "J24")
def test_what_is_yielded_cannot_be_grouped() -> None:
    """PyTriton answers with what is no response."""

    def infer(*requests: Any, **inputs: Any) -> Iterator[Any]:
        yield []

    with pytest.raises(
        PyTritonRuntimeError, match=r"^The @group_by_keys decorator needs a function"
    ):
        group_by_keys(infer)([request(a=[[1]])])
    with pytest.raises(PyTritonRuntimeError, match=r"^The @group_by_values decorator needs a func"):
        group_by_values("a")(infer)(a=array([[1]]))


def calls_by_value(inputs: dict[str, Any], *keys: str) -> tuple[list[Any], list[Any]]:
    """Return the inputs of each call, and the response."""
    seen = []

    @batch
    @group_by_values(*keys)
    def infer(**inputs: np.ndarray) -> Any:
        seen.append(plain(inputs))
        return {"sum": 2 * inputs["a"]}

    return seen, plain(infer([Request(inputs)]))


@pytest.mark.row("J24")
def test_rows_with_equal_values_are_executed_together_and_keep_their_order() -> None:
    calls, responses = calls_by_value(
        {"a": array([[1], [2], [3]]), "k": np.array([[2], [1], [2]], np.int32)}, "k"
    )

    assert [{"a": [[2]], "k": [[1]]}, {"a": [[1], [3]], "k": [[2], [2]]}] == calls
    assert [{"sum": [[2], [4], [6]]}] == responses


@pytest.mark.row("J24")
@pytest.mark.parametrize("dtype", [object, np.bytes_])
def test_strings_group_by_their_length_first(dtype: Any) -> None:
    keys = np.array([[b"bb"], [b"a"], [b"bb"], [b"c"]], dtype)

    calls, _ = calls_by_value({"a": array([[1], [2], [3], [4]]), "k": keys}, "k")

    assert [[[b"a"]], [[b"c"]], [[b"bb"], [b"bb"]]] == [call["k"] for call in calls]


@pytest.mark.row("J24")
def test_several_values_group_together() -> None:
    calls, responses = calls_by_value(
        {
            "a": array([[1], [2], [3], [4]]),
            "k": np.array([b"x", b"x", b"x", b"y"], object),
            "l": np.array([1, 256, 1, 2]),
        },
        "k",
        "l",
    )

    assert [[[1], [3]], [[2]], [[4]]] == [call["a"] for call in calls]
    assert [{"sum": [[2], [4], [6], [8]]}] == responses


def by_length(pad_fn: Any, make: Any) -> Any:
    """Return a callable whose outputs differ between groups, which are rows of equal `k`."""

    @batch
    @group_by_values("k", pad_fn=pad_fn)
    def infer(a: np.ndarray, k: np.ndarray) -> Any:
        return make(a, int(k[0, 0]))

    return infer([request(a=[[1], [2], [3]], k=[[2], [1], [3]])])


@pytest.mark.row("J24")
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda a, n: np.repeat(a, n, axis=1), [[1, 1, 7], [2, 7, 7], [3, 3, 3]]),
        (lambda a, n: np.array([[b"x" * n]]), [[b"xx"], [b"x"], [b"xxx"]]),
        (lambda a, n: np.array([["x"] * n]), [["x", "x", ""], ["x", "", ""], ["x", "x", "x"]]),
        (
            lambda a, n: np.array([[b"x"] * n], object),
            [[b"x", b"x", b""], [b"x", b"", b""], [b"x", b"x", b"x"]],
        ),
    ],
)
def test_outputs_of_groups_are_padded_to_fit(make: Any, expected: Any) -> None:
    (response,) = by_length(ConstantPadder(7), lambda a, n: {"sum": make(a, n)})

    assert expected == plain(response["sum"])


@pytest.mark.row("J24")
def test_strings_of_several_lengths_fit_without_padding() -> None:
    """PyTriton cuts them to the length in the first group."""
    (response,) = by_length(None, lambda a, n: {"sum": np.array([[b"x" * n]])})

    assert [[b"xx"], [b"x"], [b"xxx"]] == plain(response["sum"])


def test_groups_must_have_the_same_outputs() -> None:
    """PyTriton says so by a KeyError, or answers with zeros."""
    with pytest.raises(PyTritonRuntimeError, match="returned different outputs for different"):
        by_length(None, lambda a, n: {f"sum{n}": a})


@pytest.mark.row("J24")
def test_rows_are_not_grouped_around_a_batch() -> None:
    infer = group_by_values("a")(triton_context(batch(lambda a: {"sum": a})))

    with pytest.raises(PyTritonRuntimeError) as caught:
        infer(a=array([[1]]))

    assert "The @group_by_values decorator must be used after the @batch decorator." == str(
        caught.value
    )


@pytest.mark.row("J24")
def test_a_padder_pads_what_each_batch_has() -> None:
    padded = ConstantPadder(-1)(
        [
            {"a": array([[1, 2]]), "b": np.array([[b"xyz"]])},
            {"a": array([[3]]), "b": np.array([[b"x", b"y"]])},
            {"a": array([[4]])},
        ]
    )

    assert [
        {"a": [[1, 2]], "b": [[b"xyz", b""]]},
        {"a": [[3, -1]], "b": [[b"x", b"y"]]},
        {"a": [[4, -1]]},
    ] == plain(padded)
    assert ["float32", "|S3"] == [padded[1][name].dtype for name in "ab"]


@pytest.mark.row("J24")
@pytest.mark.parametrize("other", [np.array([3]), np.array([3.0]), np.array([b"x"])])
def test_a_padder_wants_one_type(other: np.ndarray) -> None:
    with pytest.raises(PyTritonRuntimeError) as caught:
        ConstantPadder()([{"a": array([1, 2])}, {"a": other}])

    assert "All input arrays for given input name must have the same dtype." == str(caught.value)
