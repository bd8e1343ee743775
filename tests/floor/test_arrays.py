"""Arrays of numpy as inputs of a model that has another datatype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zmqtriton_floor.arrays import to_tensors
from zmqtriton_floor.datatypes import BY_NUMBER
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.tensors import to_numpy


def sent(value: Any, data_type: str) -> Any:
    """Return the array that a model with this input gets."""
    config = {"input": [{"name": "X", "data_type": data_type}]}
    [(_, number, shape, data)] = to_tensors({"X": value}, config)
    assert data_type.endswith(BY_NUMBER[number].name)
    return to_numpy(number, shape, bytes(data))


@pytest.mark.parametrize(
    ("array", "data_type"),
    [
        (np.ones(3), "TYPE_FP32"),
        (np.array([0.1, np.nan, -np.inf]), "TYPE_FP16"),
        (np.array([1.5], np.float32), "TYPE_FP64"),
        (np.arange(3), "TYPE_FP32"),
        (np.array([True, False]), "TYPE_FP32"),
        (np.arange(3), "TYPE_INT32"),
        (np.array([0, 255]), "TYPE_UINT8"),
        (np.array([0, 1]), "TYPE_BOOL"),
        (np.array([2**63 - 1], np.uint64), "TYPE_INT64"),
        (np.zeros((2, 0)), "TYPE_FP32"),
    ],
)
def test_numbers_become_those_of_the_model(array: Any, data_type: str) -> None:
    got = sent(array, data_type)

    assert array.shape == got.shape
    np.testing.assert_array_equal(array.astype(got.dtype), got)


@pytest.mark.parametrize(
    ("array", "data_type", "name"),
    [
        (np.array([1.0]), "TYPE_INT32", "np.int32"),
        (np.array([1.0]), "TYPE_BOOL", "np.bool"),
        (np.array([256]), "TYPE_UINT8", "np.uint8"),
        (np.array([-1]), "TYPE_UINT64", "np.uint64"),
        (np.array([2**63], np.uint64), "TYPE_INT64", "np.int64"),
        (np.array([2]), "TYPE_BOOL", "np.bool"),
        (np.array([1e300]), "TYPE_FP32", "np.float32"),
        (np.array([70_000]), "TYPE_FP16", "np.float16"),
    ],
)
def test_numbers_that_would_be_others_are_refused(array: Any, data_type: str, name: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        sent(array, data_type)

    text = f"input 'X' is an array of {array.dtype}, which {data_type} of the model cannot hold"
    assert refused.value.text.startswith(f"{text} unchanged: pass {name}")


def test_what_is_no_number_and_an_input_that_is_not_known_go_as_they_are() -> None:
    texts, floats = np.array(["a"]), np.ones(1)
    config = {"input": [{"name": "X", "data_type": "TYPE_FP32"}]}

    tensors = to_tensors({"X": texts, "Y": floats}, config)

    assert ["BYTES", "FP64"] == [BY_NUMBER[tensor.datatype].name for tensor in tensors]
