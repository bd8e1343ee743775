"""Responses of generate as flat JSON documents, bare or as server-sent events.

How many there will be and when they are sent is not known here. What takes long is left to a
thread, in pieces, so that others are answered meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.datatypes import BY_NUMBER, BYTES, count_elements
from zmqtriton_floor.errors import InternalError, Unavailable, ZmqTritonError
from zmqtriton_floor.wire import ResponseBody, Tensor
from zmqtriton_frontends.gateway import StreamItem
from zmqtriton_frontends.http_api import json_from_bytes, size_of_response
from zmqtriton_frontends.http_api.inference import json_documents
from zmqtriton_frontends.inference import ModelVersion

_Write = Callable[[dict[str, Any]], Sequence[bytes]]
#: What stands before a document, and behind it.
_Frame = tuple[bytes, bytes]
_NO_FRAME, _EVENT = (b"", b""), (b"data: ", b"\n\n")
#: In milliseconds, as long as Retry-After is.
_RETRY = b"retry: 1000\n\n"


class Writer:
    """Writes the responses to one request."""

    def __init__(
        self, model: ModelVersion, request_id: str, wait_for_room: Callable[[int], Awaitable[None]]
    ) -> None:
        """Set up; `wait_for_room` accounts for a large response before it is written."""
        self.model = model
        self._wait_for_room = wait_for_room
        self.request_id = request_id
        self._reserved: dict[str, Any] = {"id": request_id} if request_id else {}
        self._reserved["model_name"] = model.name
        self._reserved["model_version"] = str(model.version)

    async def document(self, item: StreamItem) -> tuple[bytes, int]:
        """Return the JSON of a response or an error, and the HTTP status.

        The error may be that JSON cannot carry the response. There is no JSON for an end without a
        response.
        """
        return await self._write(item, _NO_FRAME)

    async def event(self, item: StreamItem) -> bytes:
        """Return the same as an event."""
        return (await self._write(item, _EVENT))[0]

    async def first_event(self, item: StreamItem) -> tuple[bytes, int]:
        """Return the same, and the HTTP status."""
        return await self._write(item, _EVENT)

    async def _write(self, item: StreamItem, frame: _Frame) -> tuple[bytes, int]:
        body = item.body
        size = 0 if body is None else size_of_response(body)
        del body
        if size > INLINE_BYTES:
            await self._wait_for_room(size)
        if size >= json_documents.LARGE_BYTES:
            return await json_documents.aside(size, self._document, item, frame, self._pieces)
        return self._document(item, frame, _in_one)

    def _document(self, item: StreamItem, frame: _Frame, write: _Write) -> tuple[bytes, int]:
        begin, end = frame
        error = item.error
        if error is None and item.body is not None:
            try:
                # joined once: a response may be large
                return b"".join((begin, *write(self._fields(item.body)), end)), 200
            except ZmqTritonError as unwritable:
                error = unwritable
        if error is None:
            return b"", 200
        document = begin + error_document(error) + end
        return with_hint(document, error) if begin else document, error.http_status

    def _pieces(self, fields: dict[str, Any]) -> list[bytes]:
        return json_documents.members(fields)

    def _fields(self, body: ResponseBody) -> dict[str, Any]:
        fields = {tensor.name: self._value(tensor) for tensor in body.outputs}
        # of members with the same name Triton keeps its own, then a parameter, then an output
        fields.update(body.parameters)
        fields.update(self._reserved)
        return dict(sorted(fields.items()))

    def _value(self, tensor: Tensor) -> Any:
        name, number, shape, data = tensor
        datatype = BY_NUMBER.get(number)
        if datatype is None or (
            number != BYTES and len(data) != count_elements(shape) * datatype.size
        ):
            raise InternalError(
                f"invalid output '{name}' in the response of model '{self.model.name}'"
            )
        elements = json_from_bytes(name, number, data)
        return elements[0] if len(elements) == 1 else elements


def _in_one(fields: dict[str, Any]) -> tuple[bytes]:
    return (json_documents.write(fields),)


def error_document(error: ZmqTritonError) -> bytes:
    return json_documents.write({"error": error.text})


def as_event(document: bytes) -> bytes:
    """Return the event; b"" for b""."""
    return b"data: %b\n\n" % document if document else b""


def with_hint(event: bytes, error: ZmqTritonError) -> bytes:
    """Return the event of an error, which also says when its client may ask again, if it may.

    That comes last: readers that take a line for an event look at the first.
    """
    return event[:-1] + _RETRY if error.http_status == Unavailable.http_status else event
