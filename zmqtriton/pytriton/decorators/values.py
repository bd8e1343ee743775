"""Inputs that requests leave out get a value, and inputs that are equal in all rows become one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any

import numpy as np

from zmqtriton.pytriton.decorators.batches import get_inference_request_batch_size
from zmqtriton.pytriton.decorators.context import SPECIAL_KEYS, get_model_config
from zmqtriton.pytriton.decorators.wrapping import DecoratedCallable
from zmqtriton.pytriton.exceptions import PyTritonBadParameterError, PyTritonRuntimeError
from zmqtriton.pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig

Decorator = Callable[[Callable[..., Any]], Any]


def fill_optionals(**defaults: Any) -> Decorator:
    """Give inputs that a request lacks these arrays, which have no batch axis.

    Belongs outside of decorators that group. PyTritonBadParameterError tells, at the first request,
    of a default that does not fit its input.
    """

    def call(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        config = get_model_config(wrapped, instance)
        _check_defaults(defaults, {spec.name: spec for spec in config.inputs or ()})
        (requests,) = args
        for request in requests:
            _fill(request, defaults, config)
        return wrapped(*args, **kwargs)

    return lambda infer_func: DecoratedCallable(infer_func, call)


def _fill(
    request: MutableMapping[str, Any], defaults: dict[str, Any], config: TritonModelConfig
) -> None:
    size = get_inference_request_batch_size(request) if config.batching else 0
    for name, default in defaults.items():
        if name not in request:
            repeats = (size, *[1] * default.ndim)
            request[name] = np.tile(default, repeats) if config.batching else default


def _check_defaults(defaults: dict[str, Any], inputs: dict[str, TensorSpec]) -> None:
    unknown = sorted(set(defaults) - set(inputs))
    if unknown:
        raise PyTritonBadParameterError(f"Could not found {', '.join(unknown)} inputs")
    other = [
        f"{key}={value}" for key, value in defaults.items() if not isinstance(value, np.ndarray)
    ]
    if other:
        raise PyTritonBadParameterError(
            f"Could not use {', '.join(other)} defaults as they are not NumPy arrays"
        )
    for property_name, faults in (
        ("dtypes", list(_type_faults(defaults, inputs))),
        ("shapes", list(_shape_faults(defaults, inputs))),
    ):
        if faults:
            raise PyTritonBadParameterError(
                f"Could not use {', '.join(faults)} defaults as they have different than input "
                f"signature {property_name}"
            )


def _type_faults(defaults: dict[str, Any], inputs: dict[str, TensorSpec]) -> Iterator[str]:
    for name, default in defaults.items():
        expected = np.dtype(inputs[name].dtype)
        # byte strings may be of any length
        if default.dtype != expected and not (default.dtype.kind in "OS" and expected.kind in "OS"):
            yield f"{name}: dtype={default.dtype} expected_dtype={inputs[name].dtype}"


def _shape_faults(defaults: dict[str, Any], inputs: dict[str, TensorSpec]) -> Iterator[str]:
    for name, default in defaults.items():
        expected: Sequence[int] = inputs[name].shape
        fits = len(default.shape) == len(expected) and all(
            dim in (-1, length) for length, dim in zip(default.shape, expected, strict=True)
        )
        if not fits:
            yield f"{name}: shape={default.shape} expected_shape={expected}"


def first_value(*keys: str, squeeze_single_values: bool = True, strict: bool = True) -> Decorator:
    """Replace these inputs by their first row, inside or outside of `batch`.

    A row of one value becomes a scalar unless `squeeze_single_values` is off. With `strict` all
    rows must be equal: PyTritonRuntimeError says so, and if the model does not batch.
    """
    special = [key for key in keys if key == SPECIAL_KEYS[0]]
    if special:
        raise PyTritonBadParameterError(
            f"The keys {', '.join(special)} are not allowed as keys for @first_value wrapper. "
            f"The set of not allowed keys are {SPECIAL_KEYS[0]}"
        )

    def replace(inputs: Any) -> Any:
        for key in keys:
            if key in inputs:
                if strict:
                    _check_equality(key, inputs[key])
                first = inputs[key][0]
                inputs[key] = _squeeze(first) if squeeze_single_values else first
        return inputs

    def call(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        if not get_model_config(wrapped, instance).batching:
            raise PyTritonRuntimeError(
                "The @first_value decorator can only be used with models that support batching."
            )
        if set(kwargs) - set(SPECIAL_KEYS):
            return wrapped(*args, **replace(kwargs))
        requests, *others = args
        return wrapped([replace(request) for request in requests], *others, **kwargs)

    return lambda infer_func: DecoratedCallable(infer_func, call)


def _check_equality(key: str, values: np.ndarray) -> None:
    if not (values == values[:1]).all():
        raise PyTritonRuntimeError(
            f"The values on the {key!r} input are not equal. To proceed, either disable strict "
            "mode in @first_value wrapper or ensure that the values always are consistent. "
            f"The current values of {key!r} are {values!r}."
        )


def _squeeze(value: Any) -> Any:
    is_single = isinstance(value, np.ndarray) and all(length == 1 for length in value.shape)
    return value.reshape(())[()] if is_single else value
