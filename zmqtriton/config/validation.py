"""Refuses a completed configuration that cannot be served, with Triton's texts.

Called at load, after `defaults`, and again after a model's own auto-completion. Looks at the
message alone: directories are checked in `files`, instance groups in `instances`. Beyond
Triton's rules it refuses numbers that no machine can hold, so that they fail here with a reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import prod
from typing import Any

import zmqtriton_protos
from zmqtriton.config.backends import ENSEMBLE, PLATFORMS
from zmqtriton.config.ensembles import check_steps
from zmqtriton.config.errors import ConfigError
from zmqtriton.config.scheduling import check_dynamic_batching, check_sequence_batching

#: What a 64-bit process can address; a tensor of a larger size is a slip of the pen.
MAX_TENSOR_ELEMENTS = 1 << 47

_INPUT = zmqtriton_protos.message("inference.ModelInput")
_DATA_TYPES = frozenset(zmqtriton_protos.enum("inference.DataType").values_by_number) - {0}
_TENSORRT = "tensorrt_plan"


def validate(config: Any) -> None:
    """Raises ConfigError with the first rule that the configuration breaks."""
    _check_backend(config)
    if config.max_batch_size < 0:
        raise ConfigError(f"'max_batch_size' must be non-negative value for {config.name}")
    if not config.HasField("version_policy"):
        raise ConfigError(f"must specify 'version policy' for {config.name}")
    check_dynamic_batching(config)
    check_sequence_batching(config)
    if config.HasField("ensemble_scheduling"):
        check_steps(config)
    elif config.platform == ENSEMBLE:
        raise ConfigError(
            f"ensemble scheduling must be set for ensemble {config.name} whose platform is "
            f"{ENSEMBLE}"
        )
    if config.model_transaction_policy.decoupled and config.response_cache.enable:
        raise ConfigError(
            f"Response Cache does not currently support model {config.name} with 'decoupled' "
            "transaction policy. Please disable the response cache."
        )
    _check_metrics(config)
    _check_agents(config)
    _check_warmup(config)


def validate_tensors(config: Any) -> None:
    """Inputs, outputs and batch tensors; apart, because a model may add them by completion."""
    try:
        for tensor in config.input:
            _check_input(tensor, config)
        for tensor in config.output:
            _check_tensor(tensor, config, "model output")
        _check_batch_inputs(config)
        _check_batch_outputs(config)
    except ConfigError as error:
        raise ConfigError(f"{error.text} for {config.name}") from error


def _check_backend(config: Any) -> None:
    name, platform, backend = config.name, config.platform, config.backend
    if not name:
        raise ConfigError("model configuration must specify 'name'")
    if not backend and platform != ENSEMBLE:
        raise ConfigError(f"unexpected platform type '{platform}' for {name}")
    if backend and platform == ENSEMBLE:
        raise ConfigError(
            f"Ensemble model '{name}' must have platform type '{platform}' and empty backend type"
        )
    if backend in PLATFORMS and platform not in PLATFORMS[backend]:
        raise ConfigError(f"unexpected 'platform' and 'backend' pair, got:{platform}, {backend}")


def _check_input(tensor: Any, config: Any) -> None:
    _check_tensor(tensor, config, "model input")
    three_dims = (_INPUT.FORMAT_NHWC, _INPUT.FORMAT_NCHW)
    if tensor.format in three_dims and len(tensor.dims) != 3:
        raise ConfigError("model input NHWC/NCHW require 3 dims")


def _check_tensor(tensor: Any, config: Any, kind: str) -> None:
    if not tensor.name:
        raise ConfigError(f"{kind} must specify 'name'")
    where = f"{kind} '{tensor.name}'"
    if tensor.data_type not in _DATA_TYPES:
        raise ConfigError(f"{where} must specify 'data_type'")
    if not tensor.dims:
        raise ConfigError(f"{where} must specify 'dims'")
    if tensor.HasField("reshape") and not tensor.reshape.shape and config.max_batch_size == 0:
        raise ConfigError(
            f"{where} cannot have empty reshape for non-batching model as scalar tensors are not "
            "supported"
        )
    _check_dims(tensor.dims, f"{where} dimension")
    if tensor.HasField("reshape"):
        _check_dims(tensor.reshape.shape, f"{where} reshape dimensions")
        _check_reshape(tensor.dims, tensor.reshape.shape, where)
    if config.platform != _TENSORRT and tensor.is_shape_tensor:
        raise ConfigError("shape tensors are only supported for TensorRT platform")
    if config.platform != _TENSORRT and tensor.is_non_linear_format_io:
        raise ConfigError("Non-linear IO format is only supported for the TensorRT platform")


def _check_dims(dims: Sequence[int], what: str) -> None:
    for dim in dims:
        if dim < 1 and dim != -1:
            raise ConfigError(
                f"{what} must be integer >= 1, or -1 to indicate a variable-size dimension"
            )
    if prod(dim for dim in dims if dim > 0) > MAX_TENSOR_ELEMENTS:
        raise ConfigError(f"{what} must describe at most {MAX_TENSOR_ELEMENTS} elements")


def _check_reshape(dims: Sequence[int], shape: Sequence[int], where: str) -> None:
    """Both must hold the same elements, also between two dimensions of variable size."""
    before, after = _fixed_sizes(dims), _fixed_sizes(shape)
    if not shape:
        # An empty shape is a scalar, which only a tensor of one element can become.
        if before == [1]:
            return
    elif len(before) > 1 and len(after) > 1 and len(before) != len(after):
        raise ConfigError(
            f"{where} has different number of variable-size dimensions for dims and reshape"
        )
    if before != after:
        raise ConfigError(f"{where} has different size for dims and reshape")


def _fixed_sizes(dims: Sequence[int]) -> list[int]:
    """[2, 4, -1, 6] -> [8, 6]: the element counts between the dimensions of variable size."""
    sizes = [1]
    for variable, run in groupby(dims, key=lambda dim: dim == -1):
        if variable:
            sizes += [1 for _ in run]
        else:
            sizes[-1] = prod(run)
    return sizes


def _check_batch_inputs(config: Any) -> None:
    names = {tensor.name for tensor in config.input}
    kinds = zmqtriton_protos.enum("inference.BatchInput.Kind").values_by_number
    for batch in config.batch_input:
        if batch.kind not in kinds:
            raise ConfigError(f"unknown batch input kind '{batch.kind}'")
        if len(batch.source_input) != 1:
            raise ConfigError(
                f"batch input kind '{kinds[batch.kind].name}' expects 1 source input, got "
                f"{len(batch.source_input)}"
            )
        data_types = zmqtriton_protos.enum("inference.DataType").values_by_name
        if batch.data_type not in (
            data_types["TYPE_INT32"].number,
            data_types["TYPE_FP32"].number,
        ):
            raise ConfigError("batch input data type must be TYPE_INT32 or TYPE_FP32")
        _check_sources(batch.source_input, names)


def _check_batch_outputs(config: Any) -> None:
    names = {tensor.name for tensor in config.input}
    outputs = {tensor.name for tensor in config.output}
    kinds = zmqtriton_protos.enum("inference.BatchOutput.Kind").values_by_number
    for batch in config.batch_output:
        if batch.kind not in kinds:
            raise ConfigError(f"unknown batch output kind '{batch.kind}'")
        if len(batch.source_input) != 1:
            raise ConfigError(
                f"batch output kind '{kinds[batch.kind].name}' expects 1 source input, got "
                f"{len(batch.source_input)}"
            )
        _check_sources(batch.source_input, names)
        seen: set[str] = set()
        for target in batch.target_name:
            if target not in outputs:
                raise ConfigError(f"unknown target output name '{target}'")
            if target in seen:
                raise ConfigError(f"target output name '{target}' can only be specified once")
            seen.add(target)


def _check_sources(sources: Sequence[str], names: set[str]) -> None:
    for source in sources:
        if source not in names:
            raise ConfigError(f"unknown source input name '{source}'")


def _check_metrics(config: Any) -> None:
    for control in config.model_metrics.metric_control:
        if not control.HasField("metric_identifier"):
            raise ConfigError("metric control must specify 'metric_identifier'")
        if not control.metric_identifier.family:
            raise ConfigError("metric identifier must specify non-empty 'family'")
        if not control.HasField("histogram_options"):
            raise ConfigError("metric control must specify 'histogram_options'")
        if not control.histogram_options.buckets:
            raise ConfigError("histogram options must specify non-empty 'buckets'")


def _check_agents(config: Any) -> None:
    for agent in config.model_repository_agents.agents:
        if agent.name != "checksum":
            raise ConfigError(
                f"repository agent '{agent.name}' of model {config.name} is not supported, only "
                "'checksum' is"
            )


def _check_warmup(config: Any) -> None:
    for sample in config.model_warmup:
        for name, tensor in sorted(sample.inputs.items()):
            if any(dim < 0 for dim in tensor.dims):
                raise ConfigError(
                    "warmup setting expects all variable-size dimensions are specified for input "
                    f"'{name}'"
                )
            if tensor.WhichOneof("input_data_type") is None:
                raise ConfigError(
                    f"warmup setting for input '{name}' must specify one of 'zero_data', "
                    "'random_data' and 'input_data_file'"
                )
