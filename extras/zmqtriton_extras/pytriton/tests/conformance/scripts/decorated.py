"""The decorators, alone and together, on all forms of callables.

Each model gathers up to four rows for a while, so that requests that come together are one call.
"""

import numpy as np
from common import PLAIN, tensors

from zmqtriton.pytriton.decorators import (
    ConstantPadder,
    batch,
    fill_optionals,
    first_value,
    group_by_keys,
    group_by_values,
    pad_batch,
    sample,
    triton_context,
)
from zmqtriton.pytriton.model_config import DynamicBatcher, ModelConfig, Tensor

GATHERING = DynamicBatcher(max_queue_delay_microseconds=3_000_000, preferred_batch_size=[4])
#: For requests of different inputs, which Triton does not join.
BRIEF = DynamicBatcher(max_queue_delay_microseconds=50_000, preferred_batch_size=[4])
INPUTS = [*tensors("a"), *tensors("k", dtype=np.int32, optional=True)]
OUTPUTS = [*tensors("b"), *tensors("n", dtype=np.int32)]


def count(a):
    """Of how many rows a call was."""
    return np.full((len(a), 1), len(a), np.int32)


@batch
def batched(a, **others):
    return {"b": a * 2, "n": count(a)}


@batch
def batched_list(a):
    return [a * 2, count(a)]


@batch
def batched_tuple(a):
    return a * 2, count(a)


@batch
def batched_short_list(a):
    return [a]


@batch
def batched_too_few(a):
    return {"b": a[:1] * 2, "n": count(a)}


@batch
def batched_nothing(a):
    return None


@batch
def batched_raises(a):
    raise KeyError("no such weight")


@batch
async def batched_async(a):
    return {"b": a, "n": count(a)}


@batch
def batched_each(a):
    for number in range(3):
        yield {"b": a + number, "n": count(a)}


class Model:
    @batch
    def method(self, a):
        return {"b": a * 3, "n": count(a)}

    @batch
    def __call__(self, a):
        return [a * 4, count(a)]


@group_by_keys
@batch
def by_keys(a, k=None):
    return {"b": a if k is None else a + k, "n": count(a)}


@batch
@group_by_values("k")
def by_values(a, k):
    return {"b": a + k[0], "n": count(a)}


@batch
@group_by_values("k", pad_fn=ConstantPadder(-1))
def by_values_padded(a, k):
    return {"b": a[:, : int(k[0, 0])], "n": count(a)}


@batch
@group_by_values("k")
def by_values_uneven(a, k):
    return {"b": a[:, : int(k[0, 0])], "n": count(a)}


@group_by_values("k")
@batch
def by_values_wrongly(a, k):
    return {"b": a, "n": count(a)}


@fill_optionals(k=np.array([7], np.int32))
@batch
def filled(a, k):
    return {"b": a + k, "n": k[:, :1] * 0 + len(a)}


@fill_optionals(nobody=np.array([7], np.int32))
@batch
def filled_unknown(a, k):
    return {"b": a, "n": count(a)}


@fill_optionals(k=7)
@batch
def filled_number(a, k):
    return {"b": a, "n": count(a)}


@fill_optionals(k=np.array([7.0], np.float64))
@batch
def filled_type(a, k):
    return {"b": a, "n": count(a)}


@fill_optionals(k=np.array([[7]], np.int32))
@batch
def filled_shape(a, k):
    return {"b": a, "n": count(a)}


@batch
@pad_batch
def padded(a):
    return {"b": a[:4], "n": np.full((min(len(a), 4), 1), len(a), np.int32)}


@batch
@pad_batch
def padded_all(a, **others):
    """Returns what the padding has added too."""
    return {"b": a, "n": count(a)}


@batch
@first_value("k")
def first(a, k):
    return {"b": a + k, "n": np.full((len(a), 1), np.ndim(k), np.int32)}


@batch
@first_value("k", squeeze_single_values=False)
def first_kept(a, k):
    return {"b": a + k, "n": np.full((len(a), 1), np.ndim(k), np.int32)}


@batch
@first_value("k", strict=False)
def first_of_any(a, k):
    return {"b": a + k, "n": count(a)}


@first_value("k")
def first_of_requests(requests):
    return [
        {"b": r["a"] + r["k"], "n": np.full((len(r["a"]), 1), np.ndim(r["k"]), np.int32)}
        for r in requests
    ]


@batch
@triton_context
def with_context(a, **inputs):
    config = inputs["triton_context"].model_configs[with_context]
    return {"b": a, "n": np.full((len(a), 1), config.max_batch_size, np.int32)}


@fill_optionals(k=np.array([1], np.int32))
@group_by_keys
@batch
@group_by_values("k")
@first_value("k")
def all_together(a, k):
    return {"b": a + k, "n": np.full((len(a), 1), np.ndim(k), np.int32)}


@sample
def sampled(a, k=None):
    return {"b": a * 2 if k is None else a + k, "n": np.array([a.ndim], np.int32)}


@sample
def sampled_list(a):
    return [a * 2, np.array([a.ndim], np.int32)]


@sample
def sampled_number(a):
    return 7


@first_value("k")
@sample
def first_without_batches(a, k):
    return {"b": a, "n": k}


def shared(requests):
    return batched(requests)


GATHERED = {
    "batched": batched,
    "batched_list": batched_list,
    "batched_tuple": batched_tuple,
    "batched_short_list": batched_short_list,
    "batched_too_few": batched_too_few,
    "batched_nothing": batched_nothing,
    "batched_raises": batched_raises,
    "batched_async": batched_async,
    "batched_method": Model().method,
    "batched_object": Model(),
    "by_values": by_values,
    "by_values_padded": by_values_padded,
    "by_values_uneven": by_values_uneven,
    "by_values_wrongly": by_values_wrongly,
    "filled": filled,
    "filled_unknown": filled_unknown,
    "filled_number": filled_number,
    "filled_type": filled_type,
    "filled_shape": filled_shape,
    "padded": padded,
    "padded_all": padded_all,
    "first": first,
    "first_kept": first_kept,
    "first_of_any": first_of_any,
    "first_of_requests": first_of_requests,
    "with_context": with_context,
    "all_together": all_together,
}
MIXED = {"batched_mixed": batched, "by_keys": by_keys, "filled_mixed": filled}
ALONE = {
    "sampled": sampled,
    "sampled_list": sampled_list,
    "sampled_number": sampled_number,
    "first_without_batches": first_without_batches,
}


def bind(triton):
    for functions, batcher in ((GATHERED, GATHERING), (MIXED, BRIEF)):
        config = ModelConfig(max_batch_size=4, batcher=batcher)
        for name, function in functions.items():
            triton.bind(name, function, INPUTS, OUTPUTS, config=config)
    for name, function in ALONE.items():
        triton.bind(name, function, INPUTS, OUTPUTS, config=PLAIN)
    each = ModelConfig(max_batch_size=4, decoupled=True)
    triton.bind("batched_each", batched_each, tensors("a"), OUTPUTS, config=each)
    # One callable behind two models of different configurations.
    outputs = [Tensor(name="b", dtype=np.float32, shape=(-1,))]
    for name, size in (("shared_small", 2), ("shared_large", 4)):
        config = ModelConfig(max_batch_size=size)
        triton.bind(name, size_of_context, tensors("a"), outputs, config=config)


@batch
@triton_context
def size_of_context(a, **inputs):
    config = inputs["triton_context"].model_configs[size_of_context]
    return [np.full((len(a), 1), config.max_batch_size, np.float32)]
