"""A request of gRPC, from one of HTTP."""

from __future__ import annotations

from urllib.parse import unquote

import zmqtriton_protos
from zmqtriton.ctl import PreparedRequest
from zmqtriton_floor.errors import InvalidArgument


def encode(path: str, request: PreparedRequest, *, is_stream: bool) -> bytes:
    """Return the bytes of a ModelInferRequest. Raises InvalidArgument for values in JSON."""
    if not request.pieces and request.document.get("inputs"):
        raise InvalidArgument("over gRPC, inputs are given by name and not as a whole request")
    _, _, _, model, *version = path.split("/")
    message = zmqtriton_protos.message("inference.ModelInferRequest")()
    message.model_name = unquote(model)
    message.model_version = unquote(version[1]) if version else ""
    for entry in request.document["inputs"]:
        message.inputs.add(name=entry["name"], datatype=entry["datatype"], shape=entry["shape"])
    message.raw_input_contents.extend(request.pieces)
    if is_stream:
        message.parameters["triton_enable_empty_final_response"].bool_param = True
    return bytes(message.SerializeToString())
