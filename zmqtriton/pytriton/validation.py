"""Checks what an inference callable returns, before it is sent.

What fails raises ValueError, whose text the client gets.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Any, NoReturn

import numpy as np

from zmqtriton.pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from zmqtriton.pytriton.proxy.types import Response

_KINDS = "biufOSU"


class ResponseValidator:
    """The rules for the responses of one model."""

    def __init__(self, model_config: TritonModelConfig, *, strict: bool) -> None:
        self._model = model_config.model_name
        self._batch_dimensions = 1 if model_config.batching else 0
        self._outputs = {output.name: output for output in model_config.outputs or ()}
        self._strict = strict

    def validate_responses(self, requests: Sized, responses: Any) -> None:
        """Check the responses to these requests."""
        if not isinstance(responses, list):
            raise ValueError(
                f"Outputs returned by `{self._model}` model callable must be list of response "
                f"dicts with numpy arrays. Got outputs={responses} instead."
            )
        if len(responses) != len(requests):
            raise ValueError(
                f"Number of outputs returned by `{self._model}` inference callable "
                f"({len(responses)}) does not match number of requests ({len(requests)}) "
                "received from Triton."
            )
        for response in responses:
            self._check_response(response)

    def _check_response(self, response: Any) -> None:
        if not isinstance(response, dict | Response):
            raise ValueError(
                f"Outputs returned by `{self._model}` model callable must be list of response "
                f"dicts with numpy arrays. Got response={response} instead."
            )
        for name, value in response.items():
            self._check_output(name, value)
            if self._strict:
                self._compare(name, value)

    def _check_output(self, name: Any, value: Any) -> None:
        if not isinstance(name, str):
            raise ValueError(f"Not all keys returned by `{self._model}` model callable are string")
        if not isinstance(value, np.ndarray):
            raise ValueError(
                f"Not all values returned by `{self._model}` model callable are numpy arrays"
            )
        if value.dtype.kind not in _KINDS:
            raise ValueError(
                "Only bool, numeric, string, unicode and object arrays are supported by Triton "
                f"(dtype.kind: {_KINDS}). Returned `{name}` for model `{self._model}` "
                f"has `{value.dtype.kind}` dtype.kind."
            )
        if value.dtype.kind == "O" and value.size and not isinstance(value.item(0), bytes):
            self._refuse_object(name, value.item(0))

    def _refuse_object(self, name: str, element: Any) -> NoReturn:
        if isinstance(element, str):
            raise ValueError(
                "Use string/byte-string instead of object for passing string in NumPy array "
                f"from model `{self._model}`."
            )
        raise ValueError(
            f"Only bytes as objects dtype are supported by PyTriton. Returned `{name}` from "
            f"`{self._model}` has `{type(element)}` type."
        )

    def _compare(self, name: str, value: np.ndarray) -> None:
        """Check an output against its declaration."""
        declared = self._outputs.get(name)
        if declared is None:
            raise ValueError(
                f"Returned output `{name}` is not defined in model config for model "
                f"`{self._model}`."
            )
        where = f"Returned output `{name}` for model `{self._model}`"
        if not _is_of_type(value, declared):
            raise ValueError(
                f"{where} has invalid type. Returned: {value.dtype} ({value.dtype.kind}). "
                f"Expected: {declared.dtype}."
            )
        shape = value.shape[self._batch_dimensions :]
        shapes = f"Returned: {shape}. Expected: {declared.shape}."
        if len(shape) != len(declared.shape):
            raise ValueError(f"{where} has invalid shapes. {shapes}")
        if not _fits(shape, declared.shape):
            raise ValueError(f"{where} has invalid shapes at one or more positions. {shapes}")


def _is_of_type(value: np.ndarray, declared: TensorSpec) -> bool:
    if value.dtype.kind in "OSU":
        return np.dtype(declared.dtype).kind in "OS"
    return bool(np.issubdtype(value.dtype, declared.dtype))


def _fits(shape: Sequence[int], declared: Sequence[int]) -> bool:
    return all(dim in (-1, length) for length, dim in zip(shape, declared, strict=True))
