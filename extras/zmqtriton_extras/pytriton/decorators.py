"""Decorators of inference callables: they turn requests into arguments of a function of arrays.

Requests become arrays, as one batch, in groups or one by one, and arrays become responses. All
decorators of one callable find the context of its model through the function below them.
"""

from __future__ import annotations

import functools
import inspect
import struct
from bisect import bisect_left
from collections.abc import (
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zmqtriton_extras.pytriton.constants import TRITON_CONTEXT_FIELD_NAME
from zmqtriton_extras.pytriton.exceptions import (
    PyTritonBadParameterError,
    PyTritonRuntimeError,
    PyTritonValidationError,
)
from zmqtriton_extras.pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from zmqtriton_extras.pytriton.proxy.telemetry import start_span_from_span

__all__ = [
    "ConstantPadder",
    "InferenceRequest",
    "InferenceRequests",
    "InferenceResult",
    "InferenceResults",
    "InputNames",
    "ModelConfigDict",
    "TritonContext",
    "batch",
    "convert_output",
    "fill_optionals",
    "first_value",
    "get_inference_request_batch_size",
    "get_model_config",
    "get_triton_context",
    "group_by_keys",
    "group_by_values",
    "pad_batch",
    "sample",
    "triton_context",
]

InputNames = list[str]
InferenceRequest = Mapping[str, np.ndarray]
InferenceRequests = Sequence[InferenceRequest]
InferenceResult = Mapping[str, np.ndarray]
InferenceResults = Sequence[InferenceResult]

_SPAN = "pytriton-batch-decorator-span"
_ATTRIBUTE = "__triton_context__"
#: Keyword arguments that are not inputs.
SPECIAL_KEYS = (_ATTRIBUTE, TRITON_CONTEXT_FIELD_NAME)
#: Takes the callable, the object whose method it is, or None, and the arguments of one call.
Wrapper = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]
Decorator = Callable[[Callable[..., Any]], Any]


class DecoratedCallable:
    # A docstring, or annotations, would be found in place of the callable's own.
    __slots__ = ("__weakref__", "__wrapped__", "_self_instance", "_self_wrapper")

    def __init__(self, wrapped: Any, wrapper: Wrapper, instance: Any = None) -> None:
        if instance is None:
            instance = getattr(wrapped, "__self__", None)
        for name, value in (
            ("__wrapped__", wrapped),
            ("_self_wrapper", wrapper),
            ("_self_instance", instance),
        ):
            object.__setattr__(self, name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._self_wrapper(self.__wrapped__, self._self_instance, args, kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        wrapped = self.__wrapped__
        if not hasattr(type(wrapped), "__get__"):
            return self
        if instance is None and not isinstance(wrapped, (staticmethod, classmethod)):
            return _MethodOfClass(wrapped, self._self_wrapper)
        return DecoratedCallable(wrapped.__get__(instance, owner), self._self_wrapper)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self.__wrapped__.__class__

    @property
    def __doc__(self) -> Any:  # type: ignore[override]
        return self.__wrapped__.__doc__

    @property
    def __module__(self) -> Any:  # type: ignore[override]
        return self.__wrapped__.__module__

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__wrapped__, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.__wrapped__, name)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)

    def __str__(self) -> str:
        return str(self.__wrapped__)

    def __eq__(self, other: object) -> bool:
        return bool(self.__wrapped__ == other)

    def __hash__(self) -> int:
        return hash(self.__wrapped__)

    def __reduce_ex__(self, protocol: Any) -> str:
        # pickled as functions are: by name
        return str(self.__wrapped__.__qualname__)


class _MethodOfClass(DecoratedCallable):
    # A method taken from its class: whoever calls it brings the object.
    __slots__ = ()

    def __call__(self, instance: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self.__get__(instance, type(instance))(*args, **kwargs)


def layers(infer_func: Any) -> Iterator[Any]:
    """Return a callable and everything below it, down to the undecorated one."""
    layer = infer_func
    while layer is not None:
        yield layer
        layer = getattr(layer, "__wrapped__", None)


def convert_results(results: Any, convert: Callable[[Any], Any]) -> Any:
    """Convert a returned, yielded or awaited value."""
    if inspect.isgenerator(results):
        return (convert(result) for result in results)
    if inspect.iscoroutine(results):
        return _convert_awaited(results, convert)
    if inspect.isasyncgen(results):
        return _convert_each(results, convert)
    return convert(results)


async def _convert_awaited(results: Any, convert: Callable[[Any], Any]) -> Any:
    return convert(await results)


async def _convert_each(results: Any, convert: Callable[[Any], Any]) -> AsyncIterator[Any]:
    async for result in results:
        yield convert(result)


class ModelConfigDict(MutableMapping[Callable[..., Any], TritonModelConfig]):
    """Configurations by callable, whether decorated or not; equal bound methods are one."""

    def __init__(self) -> None:
        self._configs: dict[tuple[int, ...], tuple[Callable[..., Any], TritonModelConfig]] = {}

    def __getitem__(self, infer_func: Callable[..., Any]) -> TritonModelConfig:
        try:
            return self._configs[_identity(infer_func)][1]
        except KeyError:
            raise KeyError(str(infer_func)) from None

    def __setitem__(self, infer_func: Callable[..., Any], config: TritonModelConfig) -> None:
        # kept with its callable, so that no other gets the same identity
        self._configs[_identity(infer_func)] = (infer_func, config)

    def __delitem__(self, infer_func: Callable[..., Any]) -> None:
        del self._configs[_identity(infer_func)]

    def __len__(self) -> int:
        return len(self._configs)

    def __iter__(self) -> Iterator[Callable[..., Any]]:
        return (infer_func for infer_func, _ in self._configs.values())


def _identity(infer_func: Any) -> tuple[int, ...]:
    """Identify a callable below its decorators; an object and its `__call__` are the same."""
    if inspect.ismethod(infer_func):
        if infer_func.__name__ == "__call__":
            return (id(infer_func.__self__),)
        return (id(infer_func.__self__), id(_undecorated(infer_func.__func__)))
    return (id(_undecorated(infer_func)),)


def _undecorated(infer_func: Any) -> Any:
    *_, lowest = layers(infer_func)
    return lowest


@dataclass
class TritonContext:
    """The models of one server that are bound in this process."""

    model_configs: ModelConfigDict = field(default_factory=ModelConfigDict)


def set_triton_context(
    context: TritonContext, infer_func: Callable[..., Any], model_config: TritonModelConfig
) -> None:
    """Let the decorators of a callable find the context, and the callable's model in it."""
    context.model_configs[infer_func] = model_config
    for layer in layers(infer_func):
        owner = getattr(layer, "__self__", layer)
        try:
            setattr(owner, _ATTRIBUTE, context)
        except (AttributeError, TypeError):
            # it has no room for attributes; if its decorators ask, they are told
            return


def get_triton_context(wrapped: Any, instance: Any) -> TritonContext:
    """Return the context of a callable, or of the object whose method it is.

    For decorators of the user's own. Raises PyTritonValidationError for one that is not bound.
    """
    caller = wrapped if instance is None else instance
    context: TritonContext | None = getattr(caller, _ATTRIBUTE, None)
    if context is None:
        raise PyTritonValidationError(
            "Wrapped function or object must bound with triton to get  __triton_context__"
        )
    return context


def get_model_config(wrapped: Any, instance: Any) -> TritonModelConfig:
    """Return the configuration of the model that a callable is bound to."""
    return get_triton_context(wrapped, instance).model_configs[wrapped]


def triton_context(infer_func: Callable[..., Any]) -> Any:
    """Pass the TritonContext on as the keyword argument `triton_context`."""
    return DecoratedCallable(infer_func, _with_context)


def _with_context(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    context = get_triton_context(wrapped, instance)
    return wrapped(*args, **{**kwargs, TRITON_CONTEXT_FIELD_NAME: context})


def get_inference_request_batch_size(inference_request: InferenceRequest) -> int:
    """Return the batch size of a request: the length of its first input."""
    first: np.ndarray = next(iter(inference_request.values()))
    return len(first)


def convert_output(
    outputs: Any,
    wrapped: Any = None,
    instance: Any = None,
    model_config: TritonModelConfig | None = None,
) -> dict[str, Any]:
    """Return outputs by name; a list or tuple has the model's outputs in their order.

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

    The requests must have the same inputs (see `group_by_keys`), and outputs must be as long as the
    batch; otherwise raises PyTritonValidationError and ValueError.
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
    """Return the part of the outputs for each request."""
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
    """Return a sortable value that is equal for equal values of an input."""
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
    """Put the rows of all groups into their original order."""
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
    """Return the common type of the arrays; for strings the longest."""
    dtypes = {array.dtype for array in arrays}
    kinds = {dtype.kind for dtype in dtypes}
    if len(kinds) > 1 or (len(dtypes) > 1 and not kinds <= set("SU")):
        raise PyTritonRuntimeError(
            "All input arrays for given input name must have the same dtype."
        )
    return max(dtypes, key=lambda dtype: dtype.itemsize)


def fill_optionals(**defaults: Any) -> Decorator:
    """Give inputs that a request lacks these arrays, which have no batch axis.

    Belongs outside of decorators that group. The first request raises PyTritonBadParameterError for
    a default that does not fit its input.
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

    A row of one value becomes a scalar unless `squeeze_single_values` is off. With `strict` raises
    PyTritonRuntimeError if rows differ; raises it also if the model does not batch.
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
