"""Responses as messages: a header and frames."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from zmqtriton.sdk.frontend import ModelVersion, RegionSlice
from zmqtriton.sdk.wire import InternalError, Unavailable, ZmqTritonError, datatypes, errors, wire
from zmqtriton_extras.door import messages

_log = logging.getLogger(__name__)

#: A message's frames, the header first.
Message = list[bytes | memoryview]


def answer(number: int, fields: Mapping[str, Any]) -> Message:
    """Return the response to a verb that has only one."""
    return [messages.encode("answer", number, fields)]


def response(
    number: int,
    model: ModelVersion,
    request_id: str,
    body: wire.ResponseBody,
    places: Mapping[str, RegionSlice] = MappingProxyType({}),
    *,
    is_final: bool = True,
) -> Message:
    """Return a response of a model, with a frame for each output that is not in a region.

    Raises InternalError for an output without a datatype.
    """
    outputs = []
    frames: Message = [b""]
    for name, datatype, shape, data in body.outputs:
        datatype_entry = datatypes.BY_NUMBER.get(datatype)
        if datatype_entry is None:
            raise InternalError(
                f"invalid output '{name}' in the response of model '{model.name}': correct its "
                "datatype or shape"
            )
        output = {"name": name, "datatype": datatype_entry.name, "shape": shape}
        place = places.get(name)
        if place is None:
            frames.append(data)
        else:
            output["region"] = place.region
        outputs.append(output)
    fields: dict[str, Any] = {
        "model": model.name,
        "version": model.version,
        "outputs": outputs,
        "final": is_final,
    }
    if request_id:
        fields["request_id"] = request_id
    if body.parameters:
        fields["parameters"] = body.parameters
    frames[0] = messages.encode("response", number, fields)
    return frames


def end(number: int) -> Message:
    """Return the end of a stream whose last response was sent already."""
    return [messages.encode("end", number, {})]


def error(number: int, problem: ZmqTritonError, *, is_final: bool = True) -> Message:
    fields = {
        "code": problem.code,
        "http_status": problem.http_status,
        "grpc_status": problem.grpc_status,
        "text": problem.text,
        "final": is_final,
    }
    return [messages.encode("error", number, fields)]


def leaving(message: Message) -> Message:
    """Return a final message that also says that the server stops."""
    if len(message[0]) > messages.MAX_HEADER_BYTES:
        return message
    _, number, fields = header = messages.decode(message[0])
    return [messages.encode(header.verb, number, {**fields, "leaving": True}), *message[1:]]


def failure(verb: str, problem: BaseException) -> ZmqTritonError:
    """Return the error for a client after a handler's exception."""
    if isinstance(problem, ZmqTritonError):
        return problem
    if isinstance(problem, MemoryError):
        return Unavailable(errors.NO_MEMORY)
    _log.error("%s failed", verb, exc_info=problem)
    return InternalError("the server failed to answer; its log says why")
