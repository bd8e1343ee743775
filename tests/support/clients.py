"""Requests as tritonclient makes them, over HTTP and gRPC alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import np_to_triton_dtype

from tests.support.server import Server
from zmqtriton_protos import message


def open_client(server: Server, protocol: str, **more: Any) -> Any:
    """A client of tritonclient.http or tritonclient.grpc."""
    if protocol == "grpc":
        return tritonclient.grpc.InferenceServerClient(server.grpc_address, **more)
    return tritonclient.http.InferenceServerClient(
        server.url.removeprefix("http://"), network_timeout=60, connection_timeout=60, **more
    )


def module_of(client: Any) -> Any:
    """Return the module of tritonclient that a client is of."""
    is_http = isinstance(client, tritonclient.http.InferenceServerClient)
    return tritonclient.http if is_http else tritonclient.grpc


def infer_message(model: str, **arrays: np.ndarray[Any, Any]) -> bytes:
    """A request of gRPC as it travels; its tensors are of numbers."""
    request: Any = message("inference.ModelInferRequest")(
        model_name=model,
        inputs=[
            {"name": name, "datatype": np_to_triton_dtype(array.dtype), "shape": array.shape}
            for name, array in arrays.items()
        ],
        raw_input_contents=[array.tobytes() for array in arrays.values()],
    )
    return bytes(request.SerializeToString())


def infer_inputs(module: Any, **arrays: np.ndarray[Any, Any]) -> list[Any]:
    """The inputs of a request by tritonclient.http or tritonclient.grpc; objects are BYTES."""
    inputs = []
    for name, array in arrays.items():
        tensor = module.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    return inputs
