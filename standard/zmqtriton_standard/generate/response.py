"""Responses of generate as flat JSON documents, bare or as server-sent events.

This module knows neither their number nor when they are sent. A thread does long work, in pieces,
so that other requests are answered while it runs.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from zmqtriton.sdk.frontend import (
    ModelVersion,
    StreamItem,
    TaskTurn,
    json_documents,
    response_encoding,
    tensor_data,
    wake,
)
from zmqtriton.sdk.wire import (
    INLINE_BYTES,
    InternalError,
    Unavailable,
    ZmqTritonError,
    datatypes,
    wire,
)

_Write = Callable[[dict[str, Any]], Sequence[bytes]]
#: The bytes before a JSON document, and those after it.
_Frame = tuple[bytes, bytes]
_NO_FRAME, _EVENT = (b"", b""), (b"data: ", b"\n\n")
#: Field of an event: the client's pause before it reconnects, in milliseconds, as Retry-After.
_RETRY = b"retry: 1000\n\n"
_log = logging.getLogger(__name__)
_Item = TypeVar("_Item")

#: Maximum number of events in a chunk, and the size of a full one. The progress of the reader is
#: reported to the model after each chunk.
_MAX_EVENTS = 256
_MAX_BYTES = 64 << 10


class Events(Generic[_Item]):
    """The body of a response of server-sent events: ready ones are sent in one chunk.

    Made by generate's and by OpenAI's responders; an async iterator with the `close` that Falcon
    awaits in any case. While the connection is not writable, nothing more is taken from the
    gateway's stream. Closing the iterator cancels the request.
    """

    def __init__(
        self,
        first: bytes,
        items: AsyncGenerator[_Item, None],
        write: Callable[[_Item], Awaitable[bytes]],
        write_error: Callable[[ZmqTritonError], bytes] = lambda error: as_event(
            error_document(error)
        ),
        *,
        turn: TaskTurn,
        made: Callable[[int], None] | None = None,
    ) -> None:
        """Set up with the first chunk, the items that follow, and the way to write them.

        `made` is called with the size of each event in bytes.
        """
        self._loop = asyncio.get_running_loop()
        self._items = items
        self._write = write
        self._write_error = write_error
        self._ready = [first] if first else []
        self._bytes = len(first)
        self._has_ended = False
        #: Futures: __anext__ waits for `_more` events, and _follow for `_room` in the chunk.
        self._more: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._turn = turn
        self._made = made
        if made is not None:
            made(len(first))
        self._following: asyncio.Task[None] | None = self._loop.create_task(turn.take(self._follow))

    def __aiter__(self) -> Events[_Item]:
        return self

    async def __anext__(self) -> bytes:
        while not self._ready:
            if self._has_ended:
                raise StopAsyncIteration
            self._more = self._loop.create_future()
            await self._more
        chunk = self._ready[0] if len(self._ready) == 1 else b"".join(self._ready)
        self._ready.clear()
        self._bytes = 0
        wake(self._room)
        return chunk

    async def close(self) -> None:
        # a task that was cancelled has a traceback, which has this: all that is not sent would stay
        # until a garbage collection
        following, self._following = self._following, None
        self._ready.clear()
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        await self._items.aclose()

    async def _follow(self) -> None:
        try:
            async for item in self._items:
                event = await self._write(item)
                del item  # its memory may be the model's
                self._append(event)
                del event  # it is sent while the next one is waited for
                if self._turn.is_over:
                    await asyncio.sleep(0)
                while len(self._ready) >= _MAX_EVENTS or self._bytes >= _MAX_BYTES:
                    self._room = self._loop.create_future()
                    await self._room
        except ZmqTritonError as error:
            self._append(with_hint(self._write_error(error), error))
        except Exception:  # noqa: BLE001 - an edge: the client is told, whatever it is
            _log.exception("could not go on with a stream of events")
            self._append(self._write_error(InternalError("internal error")))
        finally:
            self._has_ended = True
            wake(self._more)

    def _append(self, event: bytes) -> None:
        if self._made is not None:
            self._made(len(event))
        if event:
            self._ready.append(event)
            self._bytes += len(event)
            wake(self._more)


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

        Returns an error if JSON cannot carry the response, and b"" for an end without a response.
        """
        return await self._write(item, _NO_FRAME)

    async def event(self, item: StreamItem) -> bytes:
        """Return a response or an error as a server-sent event."""
        return (await self._write(item, _EVENT))[0]

    async def first_event(self, item: StreamItem) -> tuple[bytes, int]:
        """Return the first response or error as an event, and the HTTP status of the stream."""
        return await self._write(item, _EVENT)

    async def _write(self, item: StreamItem, frame: _Frame) -> tuple[bytes, int]:
        body = item.body
        size = 0 if body is None else response_encoding.size_of_response(body)
        del body
        if size > INLINE_BYTES:
            await self._wait_for_room(size)
        if size >= json_documents.LARGE_BYTES:
            return await json_documents.perform(
                size, self._document, item, frame, json_documents.pieces
            )
        return self._document(item, frame, lambda fields: (json_documents.write(fields),))

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

    def _fields(self, body: wire.ResponseBody) -> dict[str, Any]:
        fields = {tensor.name: self._value(tensor) for tensor in body.outputs}
        # of members with the same name Triton keeps its own, then a parameter, then an output
        fields.update(body.parameters)
        fields.update(self._reserved)
        return dict(sorted(fields.items()))

    def _value(self, tensor: wire.Tensor) -> Any:
        name, number, shape, data = tensor
        datatype = datatypes.BY_NUMBER.get(number)
        if datatype is None or (
            number != datatypes.BYTES and len(data) != math.prod(shape) * datatype.size
        ):
            raise InternalError(
                f"invalid output '{name}' in the response of model '{self.model.name}': correct "
                "its datatype or shape"
            )
        elements = tensor_data.json_from_bytes(name, number, data)
        return elements[0] if len(elements) == 1 else elements


def error_document(error: ZmqTritonError) -> bytes:
    return json_documents.write({"error": error.text})


def as_event(document: bytes) -> bytes:
    """Return a JSON document as a server-sent event; b"" for b""."""
    return b"data: %b\n\n" % document if document else b""


def with_hint(event: bytes, error: ZmqTritonError) -> bytes:
    """Return the event of an error, with the time after which the client may try again, if any.

    The time comes last: some readers take only the first line of an event.
    """
    return event[:-1] + _RETRY if error.http_status == Unavailable.http_status else event
