"""The request of either inference RPC: a message becomes a request that is checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zmqtriton_frontends.grpc_api.inference.convert import (
    NO_OPTIONS,
    parse,
    read_body,
    read_options,
    read_wishes,
)
from zmqtriton_frontends.grpc_api.inference.gradual_parsing import (
    LARGE_BYTES,
    ParsedRequest,
    TakesLong,
)
from zmqtriton_frontends.grpc_api.inference.raw_tensors import MIN_BYTES, split_raw
from zmqtriton_frontends.inference.admission import CheckedRequest, Options, prepare
from zmqtriton_frontends.inference.catalogue import Catalogue, HeaderLookup, ModelVersion
from zmqtriton_frontends.inference.classification import NO_CLASSES
from zmqtriton_frontends.inference.client_regions import NO_PLACES
from zmqtriton_protos import message

_REQUEST = message("inference.ModelInferRequest")


def find_in_metadata(metadata: Iterable[tuple[str, str | bytes]], name: bytes) -> str | None:
    """Return the value of a client's header; None if there is no such text."""
    key = name.decode()
    return next((v for k, v in metadata if k == key and isinstance(v, str)), None)


def parse_request(data: bytes | ParsedRequest) -> tuple[Any, Sequence[Any]]:
    """Return an inference.ModelInferRequest and its raw tensors.

    Raises InvalidArgument, and TakesLong for a request that is to be given again when it is read.
    """
    if isinstance(data, ParsedRequest):
        return data.request, data.raw
    parts = split_raw(data) if len(data) >= MIN_BYTES else None
    if parts is None:
        if len(data) >= LARGE_BYTES:
            raise TakesLong(data, [])
        request = parse(_REQUEST, data)
        return request, request.raw_input_contents
    rest, raw = parts
    if len(rest) >= LARGE_BYTES:
        raise TakesLong(rest, raw)
    return parse(_REQUEST, rest), raw


def check_request(
    catalogue: Catalogue,
    model: ModelVersion,
    request: Any,
    raw: Sequence[Any],
    forwarded: Mapping[str, str],
    deadline_ns: int,
    *,
    header: HeaderLookup,
) -> CheckedRequest:
    """Admit a request to a model that was found; `forwarded` are parameters from the metadata."""
    parameters: dict[str, Any] = {}
    options = Options(deadline_ns=deadline_ns) if deadline_ns else NO_OPTIONS
    if request.parameters:
        parameters, options = read_options(request, deadline_ns)
    parameters.update(forwarded)
    body = read_body(request, raw, parameters)
    places, classes = read_wishes(request) if request.outputs else (NO_PLACES, NO_CLASSES)
    checked = prepare(catalogue, model, body, options, places, header)
    return checked._replace(classes=classes) if classes else checked
