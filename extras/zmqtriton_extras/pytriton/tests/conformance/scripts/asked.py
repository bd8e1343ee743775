"""A few models for clients to ask."""

import numpy as np
from common import DECOUPLED, PLAIN, tensors

from zmqtriton.pytriton.decorators import batch
from zmqtriton.pytriton.model_config import ModelConfig


def doubled(requests):
    return [{"b": request["a"] * 2} for request in requests]


@batch
def sums(a):
    return [a.sum(axis=1, keepdims=True)]


def echo(requests):
    return [{"b": request["a"]} for request in requests]


def parameters(requests):
    rows = [sorted(request.parameters.items()) for request in requests]
    return [{"b": np.array([repr(items).encode()])} for items in rows]


def each(requests):
    for number in range(3):
        yield [{"b": request["a"] + number} for request in requests]


def fails(requests):
    raise ValueError("no such weather")


def bind(triton):
    numbers, texts = tensors("a"), tensors("a", dtype=bytes)
    triton.bind("asked", doubled, numbers, tensors("b"), config=PLAIN)
    triton.bind("asked_rows", sums, numbers, tensors("b"), config=ModelConfig(max_batch_size=4))
    triton.bind("asked_text", echo, texts, tensors("b", dtype=bytes), config=PLAIN)
    triton.bind("asked_more", parameters, numbers, tensors("b", dtype=bytes), config=PLAIN)
    triton.bind("asked_stream", each, numbers, tensors("b"), config=DECOUPLED)
    triton.bind("asked_failing", fails, numbers, tensors("b"), config=PLAIN)
