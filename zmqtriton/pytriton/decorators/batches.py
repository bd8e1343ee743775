"""Requests become arrays, as one batch or one by one, and arrays become responses."""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from zmqtriton.pytriton.decorators.context import SPECIAL_KEYS, get_model_config
from zmqtriton.pytriton.decorators.wrapping import DecoratedCallable, convert_results
from zmqtriton.pytriton.exceptions import PyTritonValidationError
from zmqtriton.pytriton.model_config.triton_model_config import TritonModelConfig
from zmqtriton.pytriton.proxy.telemetry import start_span_from_span

InputNames = list[str]
InferenceRequest = Mapping[str, np.ndarray]
InferenceRequests = Sequence[InferenceRequest]
InferenceResult = Mapping[str, np.ndarray]
InferenceResults = Sequence[InferenceResult]

_SPAN = "pytriton-batch-decorator-span"


def get_inference_request_batch_size(inference_request: InferenceRequest) -> int:
    """Return the length of the first input."""
    first: np.ndarray = next(iter(inference_request.values()))
    return len(first)


def convert_output(
    outputs: Any,
    wrapped: Any = None,
    instance: Any = None,
    model_config: TritonModelConfig | None = None,
) -> dict[str, Any]:
    """Return outputs by name; those in a list or tuple have the model's names in their order.

    For decorators of the user's own. Raises PyTritonValidationError.
    """
    if isinstance(outputs, dict):
        return outputs
    if not isinstance(outputs, (list, tuple)):
        raise PyTritonValidationError(f"Unsupported output type {type(outputs)}.")
    declared = (model_config or get_model_config(wrapped, instance)).outputs or ()
    if len(outputs) != len(declared):
        raise PyTritonValidationError("Outputs length different than config outputs length")
    return {spec.name: output for spec, output in zip(declared, outputs, strict=True)}


def sample(infer_func: Callable[..., Any]) -> Any:
    """Call the function with the inputs of the only request, for models that do not batch."""
    return DecoratedCallable(infer_func, _call_with_sample)


def _call_with_sample(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    requests, *others = args
    results = wrapped(*others, **{**kwargs, **requests[0]})
    return convert_results(results, lambda outputs: [convert_output(outputs, wrapped, instance)])


def batch(infer_func: Callable[..., Any]) -> Any:
    """Call the function with the inputs of all requests as one batch, and share out its outputs.

    The requests must have the same inputs (see `group_by_keys`), and outputs must be as long as
    the batch: PyTritonValidationError and ValueError say so.
    """
    return DecoratedCallable(infer_func, call_with_batch)


def call_with_batch(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    requests, *others = args
    names = requests[0].keys()
    if any(request.keys() != names for request in requests):
        raise PyTritonValidationError("Cannot batch requests with different set of inputs keys")
    inputs = {name: np.concatenate([request[name] for request in requests]) for name in names}
    sizes = [get_inference_request_batch_size(request) for request in requests]
    spans = [
        start_span_from_span(request.span, _SPAN)
        for request in requests
        if getattr(request, "span", None) is not None
    ]
    try:
        results = wrapped(*others, **{**kwargs, **inputs})
    finally:
        for span in spans:
            span.end()

    def share(outputs: Any) -> list[dict[str, Any]]:
        return _split(convert_output(outputs, wrapped, instance), sizes)

    return convert_results(results, share)


def _split(outputs: Mapping[str, Any], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Return the part of each request."""
    total = sum(sizes)
    shapes = {name: np.shape(output) for name, output in outputs.items()}
    others = [f"{name}: {shape}" for name, shape in shapes.items() if shape[:1] != (total,)]
    if others:
        raise ValueError(
            f"Received output tensors with different batch sizes: {', '.join(others)}. "
            f"Expected batch size: {total}. "
        )
    responses, start = [], 0
    for size in sizes:
        stop = start + size
        responses.append({name: output[start:stop] for name, output in outputs.items()})
        start = stop
    return responses


def pad_batch(infer_func: Callable[..., Any]) -> Any:
    """Repeat the last row of the inputs up to the next preferred batch size, or the largest.

    Outputs of the padded length lose the rows that were added.
    """
    return DecoratedCallable(infer_func, _call_padded)


def _call_padded(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    inputs = {name: value for name, value in kwargs.items() if name not in SPECIAL_KEYS}
    size = get_inference_request_batch_size(inputs)
    target = _padded_size(size, get_model_config(wrapped, instance))
    rows = np.minimum(np.arange(target), size - 1)
    results = wrapped(*args, **{**kwargs, **{name: inputs[name][rows] for name in inputs}})
    return convert_results(results, functools.partial(_unpad, size=size, target=target))


def _padded_size(size: int, config: TritonModelConfig) -> int:
    preferred = (config.batcher and config.batcher.preferred_batch_size) or ()
    sizes = [*sorted(preferred), config.max_batch_size]
    position = bisect_left(sizes, size)
    return sizes[position] if position < len(sizes) else size


def _unpad(outputs: Any, size: int, target: int) -> Any:
    def cut(output: Any) -> Any:
        return output[:size] if np.shape(output)[:1] == (target,) else output

    if isinstance(outputs, dict):
        return {name: cut(output) for name, output in outputs.items()}
    return [cut(output) for output in outputs] if isinstance(outputs, (list, tuple)) else outputs
