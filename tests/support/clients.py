"""Requests as tritonclient makes them, over HTTP and gRPC alike."""

from __future__ import annotations

from typing import Any

import numpy as np
from tritonclient.utils import np_to_triton_dtype


def infer_inputs(module: Any, **arrays: np.ndarray[Any, Any]) -> list[Any]:
    """The inputs of a request by tritonclient.http or tritonclient.grpc; objects are BYTES."""
    inputs = []
    for name, array in arrays.items():
        tensor = module.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    return inputs
