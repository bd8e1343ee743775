"""The inference RPC: bytes in, the gateway's one response as bytes out.

In the table of handlers.py. Knows no transport; cancelling the task that awaits it cancels the
request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zmqtriton_floor.errors import Unsupported
from zmqtriton_frontends.catalogue import Catalogue
from zmqtriton_frontends.classification import NO_CLASSES, classify
from zmqtriton_frontends.forwarding import Forwarding
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.grpc_api.call import Call
from zmqtriton_frontends.grpc_api.convert import parse, read_body, read_options, read_wishes
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
        self._forwarding = Forwarding(gateway.settings["grpc_header_forward_pattern"])

    async def infer(self, data: bytes, call: Call) -> bytes:
        checked = self._read(data, call)
        response = await self._gateway.infer(checked)
        model = checked.model
        if checked.classes:
            response = classify(model, response, checked.classes)
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
        forwarded: dict[str, Any] = {}
        if self._forwarding:
            self._forwarding.add(forwarded, call.metadata)
        return check_request(catalogue, request, raw, forwarded, call.deadline_ns)


def parse_request(data: bytes) -> tuple[Any, Sequence[Any]]:
    """An inference.ModelInferRequest and its raw tensors; InvalidArgument where it is none."""
    parts = split_raw(data) if len(data) >= MIN_BYTES else None
    if parts is None:
        request = parse(_REQUEST, data)
        return request, request.raw_input_contents
    rest, raw = parts
    return parse(_REQUEST, rest), raw


def check_request(
    catalogue: Catalogue,
    request: Any,
    raw: Sequence[Any],
    forwarded: Mapping[str, str],
    deadline_ns: int,
) -> CheckedRequest:
    """Raises what is wrong with a request to a model that exists; `forwarded` is what of the call's
    metadata becomes parameters."""
    parameters, options = read_options(request, deadline_ns)
    parameters.update(forwarded)
    body = read_body(request, raw, parameters)
    places, classes = read_wishes(request) if request.outputs else (NO_PLACES, NO_CLASSES)
    model, version = request.model_name, request.model_version
    checked = prepare(catalogue, model, version, body, options, places)
    return checked._replace(classes=classes) if classes else checked
