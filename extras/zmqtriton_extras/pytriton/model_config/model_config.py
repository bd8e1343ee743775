"""The user's configuration of a model."""

from __future__ import annotations

from dataclasses import dataclass, field

from zmqtriton_extras.pytriton.model_config.common import DynamicBatcher, ModelWarmup


@dataclass
class ModelConfig:
    #: False: tensors have no batch, and every request is executed alone.
    batching: bool = True
    max_batch_size: int = 4
    batcher: DynamicBatcher = field(default_factory=DynamicBatcher)
    response_cache: bool = False
    #: The callable answers a request by any number of responses.
    decoupled: bool = False
    model_warmup: list[ModelWarmup] | None = None
