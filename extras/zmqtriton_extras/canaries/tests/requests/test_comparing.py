"""Comparisons of two responses."""

from __future__ import annotations

import numpy as np
import pytest

from zmqtriton_extras.canaries.requests import find_difference
from zmqtriton_floor.tensors import encode_bytes
from zmqtriton_floor.wire import ResponseBody, Tensor

FP32, INT8, BYTES, BF16 = 11, 6, 13, 14


def response(*tensors: Tensor) -> ResponseBody:
    return ResponseBody({}, list(tensors))


def numbers(*values: float, name: str = "Y") -> Tensor:
    return Tensor(name, FP32, [len(values)], np.array(values, np.float32).tobytes())


def compare(stable: Tensor, canary: Tensor, tolerance: float = 0.0) -> str:
    return find_difference(response(stable), response(canary), tolerance)


@pytest.mark.row("L16")
def test_numbers_may_differ_by_the_tolerance() -> None:
    assert compare(numbers(1, 2), numbers(1, 2)) == ""
    assert compare(numbers(1, 1000), numbers(1.0005, 1000.5), 1e-3) == ""
    difference = compare(numbers(1, 1000), numbers(1.5, 1000.5), 1e-3)
    assert difference == "output 'Y' differs in 1 of 2 elements, by up to 0.5"
    assert "differs in 1 of 1" in compare(numbers(1), numbers(1.0001))


def test_what_is_no_number_is_one_value() -> None:
    nan = float("nan")
    other_nan = Tensor("Y", FP32, [1], np.array([0x7FC00001], np.uint32).tobytes())

    assert compare(numbers(nan), other_nan) == ""
    assert "differs in 1 of 2" in compare(numbers(nan, 1), numbers(2, 1))
    assert "differs in 1 of 1" in compare(numbers(float("inf")), numbers(1), 0.1)


@pytest.mark.parametrize(
    ("canary", "text"),
    [
        (numbers(1, name="Z"), "output 'Y' is missing"),
        (numbers(1, 2), "output 'Y' has the shape [2], not [1]"),
        (Tensor("Y", INT8, [1], b"\1"), "output 'Y' is INT8, not FP32"),
        (Tensor("Y", FP32, [1], b"\1"), "output 'Y' has other data than its shape needs"),
    ],
)
def test_names_types_and_shapes_must_be_the_same(canary: Tensor, text: str) -> None:
    assert text == compare(numbers(1), canary, 1.0)


def test_texts_are_compared_exactly() -> None:
    texts = [Tensor("Y", BYTES, [1], encode_bytes([text])) for text in (b"a", b"a", b"b")]

    assert compare(texts[0], texts[1]) == ""
    assert compare(texts[0], texts[2], 1.0) == "output 'Y' has other content"
    half, other = (Tensor("Y", BF16, [1], data) for data in (b"\0\1", b"\0\2"))
    assert compare(half, other, 1.0) == "output 'Y' has other content"


def test_more_outputs_are_no_difference_and_views_are_data() -> None:
    view = Tensor("Y", FP32, [2], memoryview(bytearray(numbers(1, 2).data)))

    assert (
        find_difference(response(numbers(1, 2)), response(numbers(5, name="new"), view), 0.0) == ""
    )
