"""The full configuration of a model, for decorators, clients and the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from zmqtriton_extras.pytriton.model_config.common import DeviceKind, DynamicBatcher, ModelWarmup


@dataclass
class ResponseCache:
    enable: bool


@dataclass
class TensorSpec:
    """An input or output with its name, shape and data type."""

    name: str
    shape: tuple[int, ...]
    dtype: Any
    optional: bool | None = False


@dataclass
class TritonModelConfig:
    model_name: str
    model_version: int = 1
    max_batch_size: int = 4
    batching: bool = True
    batcher: DynamicBatcher | None = None
    #: The number of instances of each kind.
    instance_group: dict[DeviceKind, int | None] = field(default_factory=dict)
    decoupled: bool = False
    backend_parameters: dict[str, str] = field(default_factory=dict)
    inputs: Sequence[TensorSpec] | None = None
    outputs: Sequence[TensorSpec] | None = None
    response_cache: ResponseCache | None = None
    model_warmup: list[ModelWarmup] | None = None

    @property
    def backend(self) -> str:
        return "python"
