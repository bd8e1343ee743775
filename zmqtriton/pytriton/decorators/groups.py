"""Requests and rows that belong together are executed together, and answered in their order."""

from __future__ import annotations

import inspect
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from zmqtriton.pytriton.decorators.batches import (
    InferenceResult,
    InferenceResults,
    call_with_batch,
    get_inference_request_batch_size,
)
from zmqtriton.pytriton.decorators.context import SPECIAL_KEYS
from zmqtriton.pytriton.decorators.wrapping import DecoratedCallable, layers
from zmqtriton.pytriton.exceptions import PyTritonRuntimeError


def group_by_keys(infer_func: Callable[..., Any]) -> Any:
    """Call the function once for each set of input names that requests have.

    Belongs outside of `batch`, which needs requests with the same inputs.
    """
    return DecoratedCallable(infer_func, _call_by_keys)


def _call_by_keys(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    requests, *others = args
    responses: list[Any] = [None] * len(requests)
    for positions in _groups(tuple(sorted(request.keys())) for request in requests):
        group = [requests[position] for position in positions]
        results = _returned(wrapped(group, *others, **kwargs), "group_by_keys")
        if len(results) != len(group):
            raise PyTritonRuntimeError(
                f"The function below @group_by_keys returned {len(results)} responses "
                f"to {len(group)} requests."
            )
        for position, response in zip(positions, results, strict=True):
            responses[position] = response
    return responses


def group_by_values(
    *keys: str, pad_fn: Callable[[InferenceResults], Iterable[InferenceResult]] | None = None
) -> Callable[[Callable[..., Any]], Any]:
    """Call the function once for each combination of values that rows have in these inputs.

    Belongs inside of `batch`. `pad_fn` gets the outputs of all calls and makes them fit into one
    array each, as ConstantPadder does.
    """

    def call(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        if any(
            getattr(layer, "_self_wrapper", None) is call_with_batch for layer in layers(wrapped)
        ):
            raise PyTritonRuntimeError(
                "The @group_by_values decorator must be used after the @batch decorator."
            )
        inputs = {name: value for name, value in kwargs.items() if name not in SPECIAL_KEYS}
        others = {name: value for name, value in kwargs.items() if name in SPECIAL_KEYS}
        size = get_inference_request_batch_size(inputs)
        rows = (tuple(_sort_key(inputs[key][row]) for key in keys) for row in range(size))
        groups = list(_groups(rows))
        results = []
        for group in groups:
            part = {name: value[group] for name, value in inputs.items()}
            results.append(_returned(wrapped(*args, **part, **others), "group_by_values"))
        if pad_fn is not None:
            results = list(pad_fn(tuple(results)))
        return _merge(size, groups, results)

    def decorate(infer_func: Callable[..., Any]) -> Any:
        return DecoratedCallable(infer_func, call)

    return decorate


def _groups(keys: Iterable[Any]) -> Iterator[list[int]]:
    """Return the positions of equal keys, in the order of the keys."""
    positions: dict[Any, list[int]] = {}
    for position, key in enumerate(keys):
        positions.setdefault(key, []).append(position)
    for key in sorted(positions):
        yield positions[key]


def _sort_key(value: Any) -> Any:
    """Return something that is equal for equal values of one input and can be sorted."""
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind not in "OS":
        return value.tobytes()
    items = [item if isinstance(item, bytes) else str(item).encode() for item in value.flat]
    packed = b"".join(struct.pack("<I", len(item)) + item for item in items)
    return struct.pack("<I", len(packed)) + packed if items else b""


def _returned(results: Any, decorator: str) -> Any:
    if inspect.isgenerator(results) or inspect.isasyncgen(results) or inspect.iscoroutine(results):
        raise PyTritonRuntimeError(
            f"The @{decorator} decorator needs a function that returns its outputs: it can be no "
            "generator and no coroutine."
        )
    return results


def _merge(size: int, groups: Sequence[list[int]], results: InferenceResults) -> dict[str, Any]:
    """Put the rows of all groups where they belong."""
    if any(result.keys() != results[0].keys() for result in results):
        raise PyTritonRuntimeError(
            "The function below @group_by_values returned different outputs for different groups."
        )
    merged = {}
    for name, first in results[0].items():
        # types of strings have a length
        dtype = np.result_type(*(result[name].dtype for result in results))
        merged[name] = np.zeros((size, *first.shape[1:]), dtype)
    for group, result in zip(groups, results, strict=True):
        for name, rows in result.items():
            merged[name][group] = rows
    return merged


class ConstantPadder:
    """Makes the outputs of all groups the same shape by appending a value; b"" to strings."""

    def __init__(self, pad_value: Any = 0) -> None:
        self.pad_value = pad_value

    def __call__(self, batches_list: InferenceResults) -> list[dict[str, np.ndarray]]:
        """Return the padded outputs. Raises PyTritonRuntimeError if types differ."""
        names = dict.fromkeys(name for outputs in batches_list for name in outputs)
        padded: list[dict[str, np.ndarray]] = [{} for _ in batches_list]
        for name in names:
            arrays = [outputs[name] for outputs in batches_list if name in outputs]
            shape = np.max([array.shape[1:] for array in arrays], axis=0)
            dtype = _common_type(arrays)
            for outputs, result in zip(batches_list, padded, strict=True):
                if name in outputs:
                    result[name] = self._pad(outputs[name], shape, dtype)
        return padded

    def _pad(self, array: np.ndarray, shape: Any, dtype: Any) -> np.ndarray:
        lengths = zip(shape, array.shape[1:], strict=True)
        widths = [(0, 0), *((0, int(size - length)) for size, length in lengths)]
        value = b"" if dtype.kind in "SUO" else self.pad_value
        if dtype.kind == "U":
            value = ""
        return np.pad(array, widths, constant_values=value).astype(dtype)


def _common_type(arrays: Sequence[np.ndarray]) -> np.dtype[Any]:
    """Return the type that the arrays have; of strings the longest."""
    dtypes = {array.dtype for array in arrays}
    kinds = {dtype.kind for dtype in dtypes}
    if len(kinds) > 1 or (len(dtypes) > 1 and not kinds <= set("SU")):
        raise PyTritonRuntimeError(
            "All input arrays for given input name must have the same dtype."
        )
    return max(dtypes, key=lambda dtype: dtype.itemsize)
