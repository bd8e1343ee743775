"""Configurations, for what Triton is told of them; and caches, warm-up, queues and versions."""

import threading

import numpy as np
from common import PLAIN, tensors, text

from zmqtriton.pytriton.model_config import (
    DynamicBatcher,
    ModelConfig,
    QueuePolicy,
    Tensor,
    TimeoutAction,
)
from zmqtriton.pytriton.model_config.common import ModelWarmup, WarmupInput


def nothing(requests):
    return [{"b": request["a"]} for request in requests]


POLICY = QueuePolicy(
    timeout_action=TimeoutAction.DELAY,
    default_timeout_microseconds=5_000_000,
    allow_timeout_override=True,
    max_queue_size=9,
)
CONFIGURATIONS = {
    "default": None,
    "unbatched": PLAIN,
    "batch_of_16": ModelConfig(max_batch_size=16),
    "no_batcher": ModelConfig(batcher=None),
    "delayed": ModelConfig(
        batcher=DynamicBatcher(max_queue_delay_microseconds=100, preferred_batch_size=[2, 4])
    ),
    "ordered": ModelConfig(batcher=DynamicBatcher(preserve_ordering=True)),
    "priorities": ModelConfig(
        batcher=DynamicBatcher(
            priority_levels=3,
            default_priority_level=2,
            default_queue_policy=QueuePolicy(max_queue_size=5),
            priority_queue_policy={1: POLICY, 3: QueuePolicy()},
        )
    ),
    "cached": ModelConfig(batching=False, response_cache=True),
    "decoupled": ModelConfig(decoupled=True),
    "batcher_without_batches": ModelConfig(
        batching=False, max_batch_size=9, batcher=DynamicBatcher(preserve_ordering=True)
    ),
}


class Counting:
    """Says how many requests it was asked, and of how many rows."""

    def __init__(self):
        self.sizes = []
        self.main = []

    def __call__(self, requests):
        self.main.append(threading.current_thread() is threading.main_thread())
        self.sizes += [list(request["a"].shape) for request in requests]
        if requests[0]["a"].size and float(requests[0]["a"].flat[0]) == 1.0:
            raise ValueError("ones are refused")
        return [{"b": text([self.sizes, self.main])} for _ in requests]


def warmed(shape, **data):
    inputs = {"a": WarmupInput(dtype=np.float32, shape=shape, **data)}
    return ModelWarmup(name="first", batch_size=2, inputs=inputs, count=2)


def bind(triton):
    for name, config in CONFIGURATIONS.items():
        triton.bind(f"config_{name}", nothing, tensors("a"), tensors("b"), config=config)
    triton.bind("version", nothing, tensors("a"), tensors("b"), model_version=3, config=PLAIN)
    triton.bind("with.dots-and_lines", nothing, tensors("a"), tensors("b"), config=PLAIN)
    triton.bind("UPPER", nothing, tensors("a"), tensors("b"), config=PLAIN)
    shapes = [Tensor(name="a", dtype=np.int64, shape=(2, -1), optional=True)]
    outputs = [Tensor(name="b", dtype=np.object_, shape=(1, 2, 3))]
    triton.bind("config_shapes", nothing, shapes, outputs)
    triton.bind("config_instances", [nothing, Counting(), nothing], tensors("a"), tensors("b"))
    says = tensors("b", dtype=bytes)
    cached = ModelConfig(batching=False, response_cache=True)
    triton.bind("counting", Counting(), tensors("a"), says, config=PLAIN)
    triton.bind("counting_cached", Counting(), tensors("a"), says, config=cached)
    for name, warmup in WARMUPS.items():
        config = ModelConfig(batching=False, model_warmup=warmup)
        triton.bind(name, Counting(), tensors("a"), says, config=config)


WARMUPS = {
    "warmed_with_zeros": [warmed((3,), zero_data=True)],
    "warmed_at_random": [warmed((5,), random_data=True)],
    "warmed_twice": [warmed((3,), zero_data=True), warmed((1,), zero_data=True)],
    "warmed_with_nothing": [warmed((3,))],
    "warmed_without_rounds": [],
}
