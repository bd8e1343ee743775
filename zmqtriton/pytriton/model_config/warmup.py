"""The requests of a warm-up: zeros, random values, or what a file has."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np

from zmqtriton.pytriton.exceptions import PyTritonBadParameterError
from zmqtriton.pytriton.model_config.common import ModelWarmup, WarmupInput

_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz0123456789", "S1")


def generate_warmup_requests(
    model_warmup: Iterable[ModelWarmup] | None,
) -> list[dict[str, np.ndarray]]:
    """Return the inputs of each request. Raises PyTritonBadParameterError, OSError, ValueError."""
    return [
        {
            name: generate_warmup_data(sample, warmup.batch_size)
            for name, sample in warmup.inputs.items()
        }
        for warmup in model_warmup or ()
        for _ in range(warmup.count)
    ]


def generate_warmup_data(warmup_input: WarmupInput, batch_size: int) -> np.ndarray:
    """Return one input of this batch size."""
    shape = (batch_size, *warmup_input.shape)
    dtype = np.dtype(warmup_input.dtype)
    if warmup_input.input_data_file:
        return _file_data(warmup_input.input_data_file, shape).astype(dtype)
    if warmup_input.zero_data:
        return np.zeros(shape, dtype)
    if warmup_input.random_data:
        return _random_data(shape, dtype)
    raise PyTritonBadParameterError(
        "One of 'zero_data', 'random_data', or 'input_data_file' must be provided for warmup input."
    )


def _file_data(path: str, shape: tuple[int, ...]) -> np.ndarray:
    data: np.ndarray = np.load(path)
    if data.shape == shape[1:]:
        return np.repeat(data[np.newaxis], shape[0], axis=0)
    if data.shape[1:] != shape[1:] or not data.size:
        raise PyTritonBadParameterError(
            f"Input data file shape {data.shape} doesn't match expected shape {shape}"
        )
    # rows are taken in turn until there are enough
    return data[np.arange(shape[0]) % len(data)]


def _random_data(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    if dtype.kind == "b":
        return np.random.choice([True, False], shape)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        low, high = (limits.min, limits.max) if limits.bits <= 16 else (0, 100)
        return np.random.randint(low, high, shape, dtype)
    if dtype.kind == "f":
        return np.random.random(shape).astype(dtype)
    if dtype.kind in "SO":
        words = [
            np.random.choice(_LETTERS, np.random.randint(8, 33)).tobytes()
            for _ in range(prod(shape))
        ]
        return np.array(words, dtype).reshape(shape)
    return np.zeros(shape, dtype)
