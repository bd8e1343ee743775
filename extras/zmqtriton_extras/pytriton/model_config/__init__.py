"""The description of a model: its tensors, its batching, its warm-up."""

from __future__ import annotations

from zmqtriton_extras.pytriton.model_config.common import (
    DeviceKind,
    DynamicBatcher,
    ModelWarmup,
    QueuePolicy,
    TimeoutAction,
    WarmupInput,
)
from zmqtriton_extras.pytriton.model_config.model_config import ModelConfig
from zmqtriton_extras.pytriton.model_config.tensor import Tensor

__all__ = [
    "DeviceKind",
    "DynamicBatcher",
    "ModelConfig",
    "ModelWarmup",
    "QueuePolicy",
    "Tensor",
    "TimeoutAction",
    "WarmupInput",
]
