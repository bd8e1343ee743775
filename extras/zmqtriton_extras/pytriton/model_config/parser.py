"""Reads a configuration from a server or a config.pbtxt into a TritonModelConfig."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zmqtriton_extras.pytriton.exceptions import PyTritonModelConfigError
from zmqtriton_extras.pytriton.model_config.common import (
    DeviceKind,
    DynamicBatcher,
    ModelWarmup,
    QueuePolicy,
    TimeoutAction,
    WarmupInput,
)
from zmqtriton_extras.pytriton.model_config.signature import numpy_type
from zmqtriton_extras.pytriton.model_config.triton_model_config import (
    ResponseCache,
    TensorSpec,
    TritonModelConfig,
)

Document = Mapping[str, Any]


class ModelConfigParser:
    """The readers, under their usual name. They raise PyTritonModelConfigError."""

    @staticmethod
    def from_dict(model_config_dict: Document) -> TritonModelConfig:
        document = model_config_dict
        largest = document.get("max_batch_size", 0)
        batcher, cache = document.get("dynamic_batching"), document.get("response_cache")
        policy = document.get("model_transaction_policy") or {}
        warmup = document.get("model_warmup")
        return TritonModelConfig(
            model_name=document["name"],
            max_batch_size=largest,
            batching=largest > 0,
            batcher=None if batcher is None else _batcher(batcher),
            instance_group={
                DeviceKind(group["kind"]): group.get("count")
                for group in document.get("instance_group", ())
            },
            decoupled=policy.get("decoupled", False),
            backend_parameters=_parameters(document.get("parameters", {})),
            inputs=_tensors(document, "input"),
            outputs=_tensors(document, "output"),
            response_cache=ResponseCache(bool(cache["enable"])) if cache else None,
            model_warmup=[_warmup(sample) for sample in warmup] if warmup else None,
        )

    @staticmethod
    def from_file(*, config_path: Path) -> TritonModelConfig:
        # It needs protobuf, which a client over HTTP may not have.
        from zmqtriton.sdk.models import pbtxt

        return ModelConfigParser.from_dict(
            json.loads(pbtxt.to_json(pbtxt.read_config(Path(config_path))))
        )


def _parameters(parameters: Any) -> dict[str, str]:
    if isinstance(parameters, Mapping):
        return {name: value["string_value"] for name, value in parameters.items()}
    if isinstance(parameters, list):
        return dict.fromkeys(parameters, "")
    raise TypeError(f"Invalid type for backend_parameters_config: {type(parameters)}")


def _tensors(document: Document, section: str) -> list[TensorSpec] | None:
    tensors = document.get(section, ())
    return [_tensor(tensor, section, index) for index, tensor in enumerate(tensors)] or None


def _tensor(tensor: Document, section: str, index: int) -> TensorSpec:
    name = tensor.get("name")
    if not name:
        raise PyTritonModelConfigError(f"Name for {section} at index {index} not provided.")
    dtype = numpy_type(tensor.get("data_type"), f"{section} with name `{name}`")
    if not tensor.get("dims"):
        raise PyTritonModelConfigError(f"Dimension for {section} with name `{name}` not defined.")
    shape = tuple(int(length) for length in tensor["dims"])
    return TensorSpec(name, shape, dtype, tensor.get("optional", False))


def _batcher(section: Document) -> DynamicBatcher:
    policy, policies = section.get("default_queue_policy"), section.get("priority_queue_policy")
    return DynamicBatcher(
        max_queue_delay_microseconds=int(section.get("max_queue_delay_microseconds", 0)),
        preferred_batch_size=section.get("preferred_batch_size"),
        preserve_ordering=bool(section.get("preserve_ordering", False)),
        priority_levels=int(section.get("priority_levels", 0)),
        default_priority_level=int(section.get("default_priority_level", 0)),
        default_queue_policy=_queue_policy(policy) if policy else None,
        priority_queue_policy=(
            {int(level): _queue_policy(own) for level, own in policies.items()}
            if policies
            else None
        ),
    )


def _queue_policy(section: Document) -> QueuePolicy:
    return QueuePolicy(
        timeout_action=TimeoutAction(section.get("timeout_action", "REJECT")),
        default_timeout_microseconds=int(section.get("default_timeout_microseconds", 0)),
        allow_timeout_override=bool(section.get("allow_timeout_override", False)),
        max_queue_size=int(section.get("max_queue_size", 0)),
    )


def _warmup(section: Document) -> ModelWarmup:
    inputs = {}
    for name, entry in section["inputs"].items():
        dtype = numpy_type(entry.get("data_type"), name)
        shape = tuple(int(length) for length in entry["dims"])
        if not shape:
            raise PyTritonModelConfigError(f"Dimension for {name} not defined.")
        inputs[name] = WarmupInput(
            dtype,
            shape,
            entry.get("zero_data", False),
            entry.get("random_data", False),
            entry.get("input_data_file"),
        )
    return ModelWarmup(section["name"], section["batch_size"], inputs, section["count"])
