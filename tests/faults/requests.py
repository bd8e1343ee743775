"""Requests over gRPC to models of tests/models, as messages that may be changed."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from zmqtriton_protos import message

SERVICE = "/inference.GRPCInferenceService/"
INFER, STREAM = SERVICE + "ModelInfer", SERVICE + "ModelStreamInfer"
RESPONSE = message("inference.ModelInferResponse")
STREAM_RESPONSE = message("inference.ModelStreamInferResponse")
_REQUEST = message("inference.ModelInferRequest")


def grpc_request(model: str, **inputs: tuple[str, Sequence[int], bytes]) -> Any:
    """Return a ModelInferRequest with inputs of these types, shapes and contents."""
    return _REQUEST(
        model_name=model,
        inputs=[{"name": n, "datatype": d, "shape": s} for n, (d, s, _) in inputs.items()],
        raw_input_contents=[data for *_, data in inputs.values()],
    )


def int32(*numbers: int) -> tuple[str, Sequence[int], bytes]:
    """Return an input of a request over gRPC."""
    return "INT32", (len(numbers),), struct.pack(f"<{len(numbers)}i", *numbers)


def tokens(count: int, delay_us: int = 0) -> Any:
    """Return a request for so many responses of the model `tokens`, of which the last is empty."""
    request = grpc_request("tokens", COUNT=int32(count), DELAY_US=int32(delay_us))
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    return request


def token_index(response: Any) -> int:
    """Return the number of a response of `tokens`; raise AssertionError for an error."""
    assert not response.error_message, response.error_message
    (index,) = struct.unpack("<i", response.infer_response.raw_output_contents[1])
    return int(index)
