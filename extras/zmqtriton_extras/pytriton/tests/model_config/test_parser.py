"""Configurations that servers tell, read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zmqtriton_extras.pytriton.exceptions import PyTritonModelConfigError
from zmqtriton_extras.pytriton.model_config.parser import ModelConfigParser

A = {"name": "a", "data_type": "TYPE_FP32", "dims": [1]}


def read(**sections: Any) -> Any:
    return ModelConfigParser.from_dict({"name": "m", **sections})


def test_a_model_batches_if_it_has_batches() -> None:
    assert (False, 0) == (read().batching, read().max_batch_size)
    assert (True, 3) == (read(max_batch_size=3).batching, read(max_batch_size=3).max_batch_size)


def test_what_is_absent_is_none() -> None:
    config = read()

    assert (None, None, None) == (config.inputs, config.outputs, config.batcher)
    assert (None, None) == (config.response_cache, config.model_warmup)


def test_numbers_of_64_bits_may_be_texts() -> None:
    config = read(
        max_batch_size=1,
        dynamic_batching={"max_queue_delay_microseconds": "5", "priority_levels": "2"},
        input=[{**A, "dims": ["-1", "2"]}],
    )

    assert (5, 2) == (config.batcher.max_queue_delay_microseconds, config.batcher.priority_levels)
    assert (-1, 2) == config.inputs[0].shape


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("TYPE_BOOL", np.dtype(bool)),
        ("TYPE_INT64", np.int64),
        ("TYPE_STRING", np.bytes_),
        ("TYPE_BF16", np.float32),
    ],
)
def test_datatypes_have_types_of_numpy(name: str, expected: Any) -> None:
    assert expected == read(input=[{**A, "data_type": name}]).inputs[0].dtype


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": ""}, "Name for input at index 0 not provided."),
        ({"data_type": None}, "Data type for input with name `a` not defined."),
        (
            {"data_type": "FP32"},
            "Invalid data type `FP32` for input with name `a` not defined. "
            "The expected name is TYPE_{type}.",
        ),
        ({"data_type": "TYPE_FP8"}, "Unsupported data type `TYPE_FP8` for input with name `a`"),
        ({"dims": []}, "Dimension for input with name `a` not defined."),
    ],
)
def test_a_tensor_that_is_not_described_is_refused(change: Any, text: str) -> None:
    with pytest.raises(PyTritonModelConfigError) as caught:
        read(input=[{**A, **change}])

    assert text == str(caught.value)
    assert text == caught.value.message


def test_parameters_are_texts() -> None:
    assert {"a": "b"} == read(parameters={"a": {"string_value": "b"}}).backend_parameters
    assert {"a": ""} == read(parameters=["a"]).backend_parameters
    with pytest.raises(TypeError, match=r"^Invalid type for backend_parameters_config: "):
        read(parameters="a")


def test_a_warm_up_without_a_shape_is_refused() -> None:
    sample = {"name": "w", "batch_size": 1, "count": 1}
    inputs = {"a": {"data_type": "TYPE_FP32", "dims": []}}

    with pytest.raises(PyTritonModelConfigError, match=r"^Dimension for a not defined\.$"):
        read(model_warmup=[{**sample, "inputs": inputs}])
