"""Decorators of inference callables: they turn requests into what a function of arrays takes."""

from __future__ import annotations

from zmqtriton.pytriton.decorators.batches import (
    InferenceRequest,
    InferenceRequests,
    InferenceResult,
    InferenceResults,
    InputNames,
    batch,
    convert_output,
    get_inference_request_batch_size,
    pad_batch,
    sample,
)
from zmqtriton.pytriton.decorators.context import (
    ModelConfigDict,
    TritonContext,
    get_model_config,
    get_triton_context,
    triton_context,
)
from zmqtriton.pytriton.decorators.groups import (
    ConstantPadder,
    group_by_keys,
    group_by_values,
)
from zmqtriton.pytriton.decorators.values import fill_optionals, first_value

__all__ = [
    "ConstantPadder",
    "InferenceRequest",
    "InferenceRequests",
    "InferenceResult",
    "InferenceResults",
    "InputNames",
    "ModelConfigDict",
    "TritonContext",
    "batch",
    "convert_output",
    "fill_optionals",
    "first_value",
    "get_inference_request_batch_size",
    "get_model_config",
    "get_triton_context",
    "group_by_keys",
    "group_by_values",
    "pad_batch",
    "sample",
    "triton_context",
]
