"""The data of a warm-up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zmqtriton_extras.pytriton.exceptions import PyTritonBadParameterError
from zmqtriton_extras.pytriton.model_config import ModelWarmup, WarmupInput
from zmqtriton_extras.pytriton.model_config.generator import (
    generate_warmup_data,
    generate_warmup_requests,
)


@pytest.mark.row("J05")
def test_each_sample_is_made_as_often_as_it_says() -> None:
    zeros = WarmupInput(np.float32, (2,), zero_data=True)
    samples = [ModelWarmup("a", 1, {"x": zeros}, 2), ModelWarmup("b", 3, {"x": zeros}, 1)]

    requests = generate_warmup_requests(samples)

    assert [(1, 2), (1, 2), (3, 2)] == [request["x"].shape for request in requests]
    assert [] == generate_warmup_requests(None)


@pytest.mark.parametrize("dtype", [np.float16, np.int64, bool, object, bytes])
def test_zeros_have_the_type(dtype: Any) -> None:
    data = generate_warmup_data(WarmupInput(dtype, [2], zero_data=True), 3)

    assert ((3, 2), np.dtype(dtype).type) == (data.shape, data.dtype.type)
    assert not data.any()


@pytest.mark.row("J05")
@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        (np.int8, -128, 127),
        (np.uint8, 0, 255),
        (np.int16, -(2**15), 2**15 - 1),
        (np.uint16, 0, 2**16 - 1),
        (np.int64, 0, 99),
        (np.uint32, 0, 99),
        (np.float32, 0, 1),
    ],
)
def test_random_numbers_have_the_range_of_small_types(dtype: Any, low: int, high: int) -> None:
    data = generate_warmup_data(WarmupInput(dtype, (1000,), random_data=True), 10)

    assert dtype == data.dtype
    assert low <= data.min() < data.max() <= high


def test_random_booleans_are_both() -> None:
    data = generate_warmup_data(WarmupInput(np.bool_, (100,), random_data=True), 1)

    assert {True, False} == set(data.flat)


@pytest.mark.parametrize("dtype", [object, np.bytes_])
def test_random_strings_are_of_letters_and_digits(dtype: Any) -> None:
    data = generate_warmup_data(WarmupInput(dtype, (50,), random_data=True), 2)

    assert (2, 50) == data.shape
    assert all(8 <= len(word) <= 32 and word.isalnum() for word in data.flat)
    assert len(set(data.flat)) > 1


@pytest.mark.row("J05")
@pytest.mark.parametrize(
    ("saved", "expected"),
    [
        ([1, 2], [[1, 2], [1, 2], [1, 2]]),
        ([[1, 2], [3, 4]], [[1, 2], [3, 4], [1, 2]]),
        ([[1, 2], [3, 4], [5, 6], [7, 8]], [[1, 2], [3, 4], [5, 6]]),
    ],
)
def test_a_file_is_repeated_or_cut_to_the_batch(saved: Any, expected: Any, tmp_path: Path) -> None:
    path = tmp_path / "data.npy"
    np.save(path, np.array(saved))

    data = generate_warmup_data(WarmupInput(np.float32, [2], input_data_file=str(path)), 3)

    assert expected == data.tolist()
    assert np.float32 == data.dtype


@pytest.mark.parametrize("shape", [(3,), (1, 3), (0, 2)])
def test_a_file_of_another_shape_is_refused(shape: tuple[int, ...], tmp_path: Path) -> None:
    path = tmp_path / "data.npy"
    np.save(path, np.zeros(shape))

    with pytest.raises(PyTritonBadParameterError) as caught:
        generate_warmup_data(WarmupInput(np.float32, (2,), input_data_file=str(path)), 4)

    assert f"Input data file shape {shape} doesn't match expected shape (4, 2)" == str(caught.value)


@pytest.mark.row("J05")
def test_an_input_without_data_is_refused() -> None:
    with pytest.raises(PyTritonBadParameterError) as caught:
        generate_warmup_data(WarmupInput(np.float32, (2,)), 1)

    assert (
        "One of 'zero_data', 'random_data', or 'input_data_file' must be provided for warmup input."
    ) == str(caught.value)
