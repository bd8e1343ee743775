"""Writes a model's configuration for the server: as the JSON of a load, or as config.pbtxt.

A warm-up has requests of zeros, of random values, or of a file's content.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from zmqtriton.sdk.models import pbtxt
from zmqtriton_extras.pytriton.exceptions import PyTritonBadParameterError
from zmqtriton_extras.pytriton.model_config.common import (
    DynamicBatcher,
    ModelWarmup,
    QueuePolicy,
    WarmupInput,
)
from zmqtriton_extras.pytriton.model_config.signature import datatype
from zmqtriton_extras.pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig

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


class ModelConfigGenerator:
    """The server's view of one configuration. Raises PyTritonBadParameterError without one."""

    def __init__(self, config: TritonModelConfig) -> None:
        self._config = config

    def get_config(self) -> dict[str, Any]:
        """Return the configuration as a document of config.pbtxt's fields."""
        config = self._config
        document: dict[str, Any] = {"name": config.model_name, "backend": config.backend}
        document |= _batching(config)
        if config.inputs:
            document["input"] = [_tensor(spec) for spec in config.inputs]
        if config.outputs:
            _refuse_optional(config.outputs)
            document["output"] = [_tensor(spec) for spec in config.outputs]
        if config.instance_group:
            document["instance_group"] = [
                {"count": count, "kind": kind.value}
                for kind, count in config.instance_group.items()
            ]
        if config.decoupled:
            document["model_transaction_policy"] = {"decoupled": True}
        if config.backend_parameters:
            document["parameters"] = {
                key: {"string_value": str(value)}
                for key, value in config.backend_parameters.items()
            }
        if config.response_cache:
            document["response_cache"] = {"enable": config.response_cache.enable}
        if config.model_warmup:
            document["model_warmup"] = [_warmup(sample) for sample in config.model_warmup]
        return document

    def to_json(self) -> str:
        """Return the `config` parameter of a load request."""
        return json.dumps(self.get_config())

    def to_text(self) -> str:
        """Return the text of config.pbtxt."""
        text = pbtxt.to_text(pbtxt.parse_json(self.to_json()))
        # protobuf leaves the default out, and a server that completes configurations would choose
        return text if self._config.batching else f"{text}max_batch_size: 0\n"

    def to_file(self, config_path: str | Path) -> None:
        path = Path(config_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.to_text(), "utf-8")


def _batching(config: TritonModelConfig) -> dict[str, Any]:
    if not config.batching:
        return {"max_batch_size": 0}
    if config.max_batch_size < 1:
        raise PyTritonBadParameterError("The `max_batch_size` must be greater or equal to 1.")
    fields: dict[str, Any] = {"max_batch_size": config.max_batch_size}
    if isinstance(config.batcher, DynamicBatcher):
        fields["dynamic_batching"] = _dynamic_batching(config.batcher)
    return fields


def _dynamic_batching(batcher: DynamicBatcher) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "max_queue_delay_microseconds": max(0, int(batcher.max_queue_delay_microseconds)),
        "preferred_batch_size": [int(size) for size in batcher.preferred_batch_size or ()],
        "preserve_ordering": batcher.preserve_ordering,
        "priority_levels": batcher.priority_levels,
        "default_priority_level": batcher.default_priority_level,
    }
    if batcher.default_priority_level > batcher.priority_levels:
        raise PyTritonBadParameterError(
            f"The `default_priority_level` must be between 1 and {batcher.priority_levels}."
        )
    if batcher.default_queue_policy:
        fields["default_queue_policy"] = _queue_policy(batcher.default_queue_policy)
    if batcher.priority_queue_policy:
        fields["priority_queue_policy"] = _priority_policies(batcher)
    return {key: value for key, value in fields.items() if value}


def _priority_policies(batcher: DynamicBatcher) -> dict[str, Any]:
    levels = batcher.priority_levels
    if not levels:
        raise PyTritonBadParameterError(
            "Provide the `priority_levels` if you want to define `priority_queue_policy` "
            "for Dynamic Batching."
        )
    policies = batcher.priority_queue_policy or {}
    for priority in policies:
        if not 0 <= priority <= levels:
            raise PyTritonBadParameterError(
                f"Invalid `priority`={priority} provided. The value must be between 1 and {levels}."
            )
    return {str(priority): _queue_policy(policy) for priority, policy in policies.items()}


def _queue_policy(policy: QueuePolicy) -> dict[str, Any]:
    return {
        "timeout_action": policy.timeout_action.value,
        "default_timeout_microseconds": int(policy.default_timeout_microseconds),
        "allow_timeout_override": policy.allow_timeout_override,
        "max_queue_size": int(policy.max_queue_size),
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    fields = {"name": spec.name, "data_type": datatype(spec.dtype), "dims": [*map(int, spec.shape)]}
    return {**fields, "optional": True} if spec.optional else fields


def _refuse_optional(outputs: Any) -> None:
    names = [spec.name for spec in outputs if spec.optional]
    if names:
        raise PyTritonBadParameterError(
            "Optional flag for outputs is not supported. "
            f"Outputs marked as optional: {', '.join(names)}."
        )


def _warmup(sample: ModelWarmup) -> dict[str, Any]:
    return {
        "name": sample.name,
        "batch_size": sample.batch_size,
        "inputs": {
            name: _warmup_input(name, sample_input) for name, sample_input in sample.inputs.items()
        },
        "count": sample.count,
    }


def _warmup_input(name: str, sample: WarmupInput) -> dict[str, Any]:
    if not (sample.zero_data or sample.random_data or sample.input_data_file):
        raise PyTritonBadParameterError(
            "One of the `zero_data`, `random_data`, or `input_data_file` must be provided for "
            f"warmup input `{name}`."
        )
    if not sample.shape:
        raise PyTritonBadParameterError(f"Dimension for {name} not defined.")
    fields: dict[str, Any] = {"data_type": datatype(sample.dtype), "dims": [*sample.shape]}
    if sample.zero_data:
        fields["zero_data"] = True
    elif sample.random_data:
        fields["random_data"] = True
    else:
        fields["input_data_file"] = sample.input_data_file
    return fields
