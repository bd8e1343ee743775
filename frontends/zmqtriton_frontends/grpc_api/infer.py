"""The inference RPC: bytes in, the gateway's one response as bytes out.

In the table of handlers.py. Knows no transport; cancelling the task that awaits it cancels the
request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zmqtriton_floor.errors import Unsupported
from zmqtriton_frontends.catalogue import Catalogue
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.grpc_api.call import Call
from zmqtriton_frontends.grpc_api.convert import parse, read_body, read_options, read_places
from zmqtriton_frontends.grpc_api.raw import MIN_BYTES, split_raw
from zmqtriton_frontends.grpc_api.response import encode_response
from zmqtriton_frontends.kserve import CheckedRequest, prepare
from zmqtriton_frontends.regions import NO_PLACES
from zmqtriton_protos import message

_REQUEST = message("inference.ModelInferRequest")


class Inference:
    """ModelInfer."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def infer(self, data: bytes, call: Call) -> bytes:
        checked = self._read(data, call)
        response = await self._gateway.infer(checked)
        model = checked.model
        return encode_response(model.name, model.version, checked.body.request_id, response)

    def _read(self, data: bytes, call: Call) -> CheckedRequest:
        # A function of its own, so that the message is freed before the response is awaited.
        request, raw = parse_request(data)
        catalogue = self._gateway.catalogue
        # The model first, as in Triton: what is wrong besides matters only where it exists.
        found = catalogue.find(request.model_name, request.model_version)
        if found.signature.is_decoupled:
            raise Unsupported(
                "ModelInfer RPC doesn't support models with decoupled transaction policy"
            )
        return check_request(catalogue, request, raw, call.deadline_ns)


def parse_request(data: bytes) -> tuple[Any, Sequence[Any]]:
    """An inference.ModelInferRequest and its raw tensors; InvalidArgument where it is none."""
    parts = split_raw(data) if len(data) >= MIN_BYTES else None
    if parts is None:
        request = parse(_REQUEST, data)
        return request, request.raw_input_contents
    rest, raw = parts
    return parse(_REQUEST, rest), raw


def check_request(
    catalogue: Catalogue, request: Any, raw: Sequence[Any], deadline_ns: int
) -> CheckedRequest:
    """Raises what is wrong with a request to a model that exists."""
    parameters, options = read_options(request, deadline_ns)
    body = read_body(request, raw, parameters)
    places = read_places(request) if request.outputs else NO_PLACES
    return prepare(catalogue, request.model_name, request.model_version, body, options, places)
