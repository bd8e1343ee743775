"""Models and requests for callables that are called without a server."""

from __future__ import annotations

from typing import Any

import numpy as np

from zmqtriton_extras.pytriton.decorators import TritonContext
from zmqtriton_extras.pytriton.model_config.triton_model_config import TensorSpec, TritonModelConfig
from zmqtriton_extras.pytriton.proxy.types import Request


def model(**fields: Any) -> TritonModelConfig:
    defaults: dict[str, Any] = {
        "model_name": "simple",
        "max_batch_size": 8,
        "inputs": [TensorSpec("a", (1,), np.float32), TensorSpec("b", (1,), np.bytes_, True)],
        "outputs": [TensorSpec("sum", (1,), np.float32), TensorSpec("count", (1,), np.int32)],
    }
    return TritonModelConfig(**{**defaults, **fields})


def bind(infer_func: Any, **fields: Any) -> Any:
    """Bind a callable as a server does, in a context of its own."""
    context = TritonContext()
    context.model_configs[infer_func] = model(**fields)
    getattr(infer_func, "__self__", infer_func).__triton_context__ = context
    return infer_func


def request(**inputs: Any) -> Request:
    return Request({name: array(value) for name, value in inputs.items()})


def array(value: Any) -> np.ndarray:
    """Return an array of float32, or of byte strings."""
    array = np.array(value)
    return array.astype(np.float32 if array.dtype.kind in "fi" else object)


def plain(result: Any) -> Any:
    """Return lists in place of arrays, for comparisons."""
    if isinstance(result, np.ndarray):
        return result.tolist()
    if isinstance(result, dict | Request):
        return {name: plain(value) for name, value in result.items()}
    return [plain(item) for item in result] if isinstance(result, list) else result
