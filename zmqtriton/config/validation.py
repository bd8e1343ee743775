"""Refuses a completed configuration that cannot be served, with Triton's texts.

Runs after `defaults`, and again after a model's own auto-completion. Yields problems in the order
in which Triton checks; looks at the message only: directories are checked in `files`, instance
groups in `instances`. Beyond Triton's rules it refuses numbers that no machine can hold, so that
they fail here with a reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import prod
from typing import Any

import zmqtriton_protos
from zmqtriton.config.backends import ENSEMBLE, PLATFORMS
from zmqtriton.config.ensembles import step_problems
from zmqtriton.config.errors import FieldPath, Problem, append_text, raise_first
from zmqtriton.config.scheduling import dynamic_batching_problems, sequence_batching_problems
from zmqtriton_floor.errors import closest_match

#: What a 64-bit process can address; a larger tensor is a slip of the pen.
MAX_TENSOR_ELEMENTS = 1 << 47

_INPUT = zmqtriton_protos.message("inference.ModelInput")
_DATA_TYPES = frozenset(zmqtriton_protos.enum("inference.DataType").values_by_number) - {0}
_TENSORRT = "tensorrt_plan"


def validate(config: Any) -> None:
    """Raise ConfigError with the first rule that the configuration breaks."""
    raise_first(config_problems(config))


def validate_tensors(config: Any) -> None:
    """Raise ConfigError with the first problem of inputs and outputs."""
    raise_first(tensor_problems(config))


def config_problems(config: Any) -> Iterator[Problem]:
    """Return all rules that the configuration breaks, except those for tensors."""
    yield from _backend_problems(config)
    if config.max_batch_size < 0:
        yield Problem(
            f"'max_batch_size' must be non-negative value for {config.name}", ("max_batch_size",)
        )
    if not config.HasField("version_policy"):
        yield Problem(f"must specify 'version policy' for {config.name}")
    yield from dynamic_batching_problems(config)
    yield from sequence_batching_problems(config)
    if config.HasField("ensemble_scheduling"):
        yield from step_problems(config)
    elif config.platform == ENSEMBLE:
        yield Problem(
            f"ensemble scheduling must be set for ensemble {config.name} whose platform is "
            f"{ENSEMBLE}",
            ("platform",),
        )
    if config.model_transaction_policy.decoupled and config.response_cache.enable:
        yield Problem(
            f"Response Cache does not currently support model {config.name} with 'decoupled' "
            "transaction policy. Please disable the response cache.",
            ("response_cache",),
        )
    yield from _metric_problems(config)
    yield from _warmup_problems(config)


def tensor_problems(config: Any) -> Iterator[Problem]:
    """Return problems of inputs, outputs and batch tensors, which a model may add by completion."""
    for index, tensor in enumerate(config.input):
        field = ("input", index)
        yield from append_text(_input_problems(tensor, config, field), f" for {config.name}")
    for index, tensor in enumerate(config.output):
        problems = _output_problems(tensor, config, "model output", ("output", index))
        yield from append_text(problems, f" for {config.name}")
    yield from append_text(_batch_input_problems(config), f" for {config.name}")
    yield from append_text(_batch_output_problems(config), f" for {config.name}")


def _backend_problems(config: Any) -> Iterator[Problem]:
    name, platform, backend = config.name, config.platform, config.backend
    if not name:
        yield Problem("model configuration must specify 'name'")
    if not backend and platform != ENSEMBLE:
        meant = closest_match(
            platform, [ENSEMBLE, *(p for platforms in PLATFORMS.values() for p in platforms)]
        )
        yield Problem(
            f"unexpected platform type '{platform}' for {name}", ("platform",), suggestion=meant
        )
    if backend and platform == ENSEMBLE:
        yield Problem(
            f"Ensemble model '{name}' must have platform type '{platform}' and empty backend type",
            ("backend",),
        )
    if backend in PLATFORMS and platform not in PLATFORMS[backend]:
        yield Problem(
            f"unexpected 'platform' and 'backend' pair, got:{platform}, {backend}",
            ("platform",),
            suggestion=closest_match(platform, PLATFORMS[backend]),
        )


def _input_problems(tensor: Any, config: Any, field: FieldPath) -> Iterator[Problem]:
    yield from _shape_problems(tensor, config, "model input", field)
    three_dims = (_INPUT.FORMAT_NHWC, _INPUT.FORMAT_NCHW)
    if tensor.format in three_dims and len(tensor.dims) != 3:
        yield Problem("model input NHWC/NCHW require 3 dims", (*field, "dims"))
    yield from _tensorrt_only_problems(tensor, config, field)


def _output_problems(tensor: Any, config: Any, kind: str, field: FieldPath) -> Iterator[Problem]:
    yield from _shape_problems(tensor, config, kind, field)
    yield from _tensorrt_only_problems(tensor, config, field)


def _tensorrt_only_problems(tensor: Any, config: Any, field: FieldPath) -> Iterator[Problem]:
    if config.platform != _TENSORRT and tensor.is_shape_tensor:
        yield Problem(
            "shape tensors are only supported for TensorRT platform", (*field, "is_shape_tensor")
        )
    if config.platform != _TENSORRT and tensor.is_non_linear_format_io:
        yield Problem(
            "Non-linear IO format is only supported for the TensorRT platform",
            (*field, "is_non_linear_format_io"),
        )


def _shape_problems(tensor: Any, config: Any, kind: str, field: FieldPath) -> Iterator[Problem]:
    if not tensor.name:
        yield Problem(f"{kind} must specify 'name'", field)
        return
    where = f"{kind} '{tensor.name}'"
    if tensor.data_type not in _DATA_TYPES:
        yield Problem(f"{where} must specify 'data_type'", field)
    if not tensor.dims:
        yield Problem(f"{where} must specify 'dims'", field)
        return
    wrong = list(_dim_problems(tensor.dims, f"{where} dimension", (*field, "dims")))
    if tensor.HasField("reshape"):
        shape = (*field, "reshape", "shape")
        wrong += _dim_problems(tensor.reshape.shape, f"{where} reshape dimensions", shape)
        if not wrong:
            yield from _reshape_problems(tensor, where, (*field, "reshape"))
    yield from wrong


def _dim_problems(dims: Sequence[int], what: str, field: FieldPath) -> Iterator[Problem]:
    for index, dim in enumerate(dims):
        if dim < 1 and dim != -1:
            yield Problem(
                f"{what} must be integer >= 1, or -1 to indicate a variable-size dimension",
                (*field, index),
            )
            return
    if prod(dim for dim in dims if dim > 0) > MAX_TENSOR_ELEMENTS:
        yield Problem(f"{what} must describe at most {MAX_TENSOR_ELEMENTS} elements", field)


def _reshape_problems(tensor: Any, where: str, field: FieldPath) -> Iterator[Problem]:
    """Return problems of a reshape, whose sides must hold the same number of elements.

    That also holds between two dimensions of variable size.
    """
    shape = tensor.reshape.shape
    before, after = _fixed_element_counts(tensor.dims), _fixed_element_counts(shape)
    if not shape:
        # an empty shape is a scalar, which only a tensor of one element can become
        if before == [1]:
            return
    elif len(before) > 1 and len(after) > 1 and len(before) != len(after):
        yield Problem(
            f"{where} has different number of variable-size dimensions for dims and reshape", field
        )
        return
    if before != after:
        yield Problem(f"{where} has different size for dims and reshape", field)


def _fixed_element_counts(dims: Sequence[int]) -> list[int]:
    """Return the element counts between dimensions of variable size: [2, 4, -1, 6] -> [8, 6]."""
    sizes = [1]
    for variable, run in groupby(dims, key=lambda dim: dim == -1):
        if variable:
            sizes += [1 for _ in run]
        else:
            sizes[-1] = prod(run)
    return sizes


def _batch_input_problems(config: Any) -> Iterator[Problem]:
    names = {tensor.name for tensor in config.input}
    kinds = zmqtriton_protos.enum("inference.BatchInput.Kind").values_by_number
    data_types = zmqtriton_protos.enum("inference.DataType").values_by_name
    allowed = [data_types[name].number for name in ("TYPE_INT32", "TYPE_FP32")]
    for index, batch in enumerate(config.batch_input):
        field = ("batch_input", index)
        if batch.kind not in kinds:
            yield Problem(f"unknown batch input kind '{batch.kind}'", (*field, "kind"))
            continue
        if len(batch.source_input) != 1:
            yield Problem(
                f"batch input kind '{kinds[batch.kind].name}' expects 1 source input, got "
                f"{len(batch.source_input)}",
                field,
            )
        if batch.data_type not in allowed:
            yield Problem(
                "batch input data type must be TYPE_INT32 or TYPE_FP32", (*field, "data_type")
            )
        yield from _source_problems(batch.source_input, names, field)


def _batch_output_problems(config: Any) -> Iterator[Problem]:
    names = {tensor.name for tensor in config.input}
    outputs = {tensor.name for tensor in config.output}
    kinds = zmqtriton_protos.enum("inference.BatchOutput.Kind").values_by_number
    for index, batch in enumerate(config.batch_output):
        field = ("batch_output", index)
        if batch.kind not in kinds:
            yield Problem(f"unknown batch output kind '{batch.kind}'", (*field, "kind"))
            continue
        if len(batch.source_input) != 1:
            yield Problem(
                f"batch output kind '{kinds[batch.kind].name}' expects 1 source input, got "
                f"{len(batch.source_input)}",
                field,
            )
        yield from _source_problems(batch.source_input, names, field)
        seen: set[str] = set()
        for number, target in enumerate(batch.target_name):
            here = (*field, "target_name", number)
            if target not in outputs:
                meant = closest_match(target, outputs)
                yield Problem(f"unknown target output name '{target}'", here, suggestion=meant)
            elif target in seen:
                yield Problem(f"target output name '{target}' can only be specified once", here)
            seen.add(target)


def _source_problems(
    sources: Sequence[str], names: set[str], field: FieldPath
) -> Iterator[Problem]:
    for index, source in enumerate(sources):
        if source not in names:
            yield Problem(
                f"unknown source input name '{source}'",
                (*field, "source_input", index),
                suggestion=closest_match(source, names),
            )


def _metric_problems(config: Any) -> Iterator[Problem]:
    for index, control in enumerate(config.model_metrics.metric_control):
        field = ("model_metrics", "metric_control", index)
        if not control.HasField("metric_identifier"):
            yield Problem("metric control must specify 'metric_identifier'", field)
        elif not control.metric_identifier.family:
            yield Problem("metric identifier must specify non-empty 'family'", field)
        if not control.HasField("histogram_options"):
            yield Problem("metric control must specify 'histogram_options'", field)
        elif not control.histogram_options.buckets:
            yield Problem("histogram options must specify non-empty 'buckets'", field)


def _warmup_problems(config: Any) -> Iterator[Problem]:
    for index, sample in enumerate(config.model_warmup):
        for name, tensor in sorted(sample.inputs.items()):
            field = ("model_warmup", index, "inputs", name)
            if any(dim < 0 for dim in tensor.dims):
                yield Problem(
                    "warmup setting expects all variable-size dimensions are specified for input "
                    f"'{name}'",
                    field,
                )
            if tensor.WhichOneof("input_data_type") is None:
                yield Problem(
                    f"warmup setting for input '{name}' must specify one of 'zero_data', "
                    "'random_data' and 'input_data_file'",
                    field,
                )
