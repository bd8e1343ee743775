"""ws://…/v2/models/{model}/stream: requests of infer in, responses out, as on a stream over gRPC.

A text message is the JSON of infer. A binary message has the length of its JSON in four bytes,
little endian, then the JSON and the binary tensors. Each response has the request's id and the
parameter `triton_final_response`; an error also has the id, and ends only its request. `{"cancel":
"id"}` cancels requests. Models that are not decoupled answer in the order of their requests. When
the client leaves or closes, all requests in progress are cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Coroutine
from contextlib import aclosing
from functools import partial
from itertools import islice
from typing import Any

import falcon.asgi
import orjson

from zmqtriton.sdk.frontend import (
    Arrivals,
    Ask,
    CheckedRequest,
    Content,
    Gateway,
    HttpRequest,
    ModelVersion,
    OpenSequences,
    RequestShares,
    Share,
    StreamItem,
    TakesLong,
    infer,
    json_documents,
    now_ns,
    response_encoding,
    wake,
)
from zmqtriton.sdk.wire import (
    INLINE_BYTES,
    InternalError,
    InvalidArgument,
    Unavailable,
    ZmqTritonError,
    errors,
    wire,
)
from zmqtriton_extras.web_sockets import frames
from zmqtriton_extras.web_sockets.frames import BINARY, TEXT, FrameReader, Message, Violation
from zmqtriton_extras.web_sockets.web_socket import WebSocket, begin, watch

_log = logging.getLogger(__name__)

#: A longer document of a request that was refused is not read again for its id.
_MAX_ID_BYTES = 64 << 10
_FIRST_ID = re.compile(rb'\s*\{\s*"id"\s*:\s*"([^"\\]{1,1024})"')
#: While this much of one client is under way, nothing more is read of it.
_MAX_REQUESTS = 1024
_MAX_REQUEST_BYTES = 64 << 20
#: The bytes of the length before the JSON of a binary message.
_LENGTH_BYTES = 4
#: A message to cancel is no longer.
_MAX_CANCEL_BYTES = 1 << 10
#: Maximum number of requests of a lost client that are cancelled in one turn of the loop.
_CANCELLED_AT_ONCE = 16
#: Silence of a client after which a server that leaves ends its connection.
_QUIET_S = 1.0
_FINAL = "triton_final_response"
_NO_BODY = wire.ResponseBody({}, [])
_CANCELLED = "the client has cancelled the request"


class Streams:
    """The WebSocket streams of a process."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._shares = RequestShares()
        self._inference = infer.Inference(gateway)

    async def converse(
        self, req: HttpRequest, resp: falcon.asgi.Response, target: tuple[str, str]
    ) -> None:
        """Begin a WebSocket to a model, and serve it to its end. Raises what refuses it."""
        deadline_ns = req.deadline_ns
        # errors before the handshake are those of HTTP
        await self._inference.entrance.find(target[0], grant=req.grant, deadline_ns=deadline_ns)
        resp.status = falcon.HTTP_101
        upgraded = begin(req)
        reader = FrameReader(self._inference.max_input_size)
        socket = WebSocket(upgraded, reader, req.hold, req.turn)
        conversation = _Conversation(
            self._gateway, self._inference, self._shares, req, socket, target
        )
        try:
            await conversation.run()
        finally:
            upgraded.close()


class _Name:
    """The client's id of a request, once its document has been read."""

    own_id = ""

    def take(self, content: Content) -> Content:
        self.own_id = content.body.request_id
        return content

    async def take_later(self, reading: Coroutine[Any, Any, Content]) -> Content:
        return self.take(await reading)


class _Request:
    """A request in progress."""

    def __init__(self, answering: asyncio.Task[None], own_id: str, size: int) -> None:
        self.answering = answering
        self.own_id = own_id
        self.size = size


class _Conversation:
    """All requests of one client."""

    def __init__(
        self,
        gateway: Gateway,
        inference: infer.Inference,
        shares: RequestShares,
        req: HttpRequest,
        socket: WebSocket,
        target: tuple[str, str],
    ) -> None:
        self._gateway = gateway
        self._inference = inference
        self._shares = shares
        self._req = req
        self._socket = socket
        self._target = target
        # what a handshake says of time is meant of each request
        self._timeout_ns = max(0, req.deadline_ns - now_ns()) if req.deadline_ns else 0
        self._loop = asyncio.get_running_loop()
        self._requests: dict[asyncio.Task[None], _Request] = {}
        self._bytes = 0
        #: Done when there is room for another request; None while there is.
        self._room: asyncio.Future[None] | None = None
        #: The latest request that is answered in its turn.
        self._latest: asyncio.Task[None] | None = None
        self._sequences = OpenSequences()
        self._asked_at = self._loop.time()

    async def run(self) -> None:
        watching = self._loop.create_task(
            watch(self._socket, self._gateway, self._is_quiet, asyncio.current_task())
        )
        try:
            await self._read()
        except Violation as violation:
            await self._socket.fail(violation)
        except Unavailable as error:
            await self._socket.close(frames.TRY_AGAIN_LATER, error.text)
        finally:
            self._socket.end()
            watching.cancel()
            try:
                await self._cancel_all()
            finally:  # this may be cancelled again
                for answering in self._requests:
                    answering.cancel()

    async def _cancel_all(self) -> None:
        """Cancel all requests, a few at a time: many clients may leave at once."""
        while some := [*islice(self._requests, _CANCELLED_AT_ONCE)]:
            for answering in some:
                answering.cancel()
            await asyncio.wait(some)

    async def _read(self) -> None:
        while (message := await self._socket.receive()) is not None:
            self._asked_at = self._loop.time()
            if not await self._cancels(message):
                await self._begin(message)
            del message
            while self._is_full():
                self._room = self._loop.create_future()
                await self._shares.wait(self._room)

    def _is_full(self) -> bool:
        own = len(self._requests)
        is_full = own >= _MAX_REQUESTS or self._bytes >= _MAX_REQUEST_BYTES
        return is_full or self._shares.is_full(own)

    async def _cancels(self, message: Message) -> bool:
        """Cancel the request that the message names; False if the message is a request itself."""
        text = message.data
        if message.opcode != TEXT or len(text) > _MAX_CANCEL_BYTES or b'"cancel"' not in text:
            return False
        try:
            document = orjson.loads(text)
        except orjson.JSONDecodeError:
            return False  # which the client is told as of any request
        if type(document) is not dict or document.keys() != {"cancel"}:
            return False
        own_id = document["cancel"]
        meant = [each.answering for each in self._requests.values() if each.own_id == own_id]
        for answering in meant:
            answering.cancel()
        if meant:
            await asyncio.wait(meant)
            await self._send_document(_error(own_id, errors.Cancelled(_CANCELLED)))
        return True

    # ---------------------------------------------------------------- requests

    async def _begin(self, message: Message) -> None:
        """Begin a request before the next one can overtake it."""
        size = len(message.data)
        try:
            self._req.hold(size)
        except Unavailable as error:
            await self._send_error(message, error)
            return
        name = _Name()
        try:
            body, length = _divided(message)
            read = partial(self._content, name, body, length)
            ask = Ask(
                self._target,
                read,
                self._req.header,
                self._req.spelled_headers,
                self._req.grant,
                self._deadline_ns(),
                now_ns(),
                source=lambda: self._req.source()._replace(protocol="websocket"),
            )
            checked = await self._inference.entrance.admit(ask)
            self._sequences.note(checked)
            await self._start(checked, size)
        except Exception as error:  # noqa: BLE001 - an edge: the other requests go on
            self._req.hold(-size)
            await self._send_error(message, _as_answer(error), name.own_id)

    def _deadline_ns(self) -> int:
        return now_ns() + self._timeout_ns if self._timeout_ns else 0

    def _content(self, name: _Name, body: Any, length: int | None, model: ModelVersion) -> Content:
        try:
            content = self._inference.read(self._req.hold, body, length, model, takes_streams=True)
        except TakesLong as long:
            raise TakesLong(name.take_later(long.reading)) from None
        return name.take(content)

    async def _start(self, checked: CheckedRequest, size: int) -> None:
        sending: asyncio.Future[None] | None = None
        if checked.is_large:
            sending = self._loop.create_future()
            checked = checked._replace(on_asked=partial(wake, sending))
        own_id, is_decoupled = checked.body.request_id, checked.model.signature.is_decoupled
        written = response_encoding.ResponseFormat(checked.model, own_id, checked.form, None)
        before = None if is_decoupled else self._latest
        # whose responses do not keep the request's tensors
        share = self._req.connection.share.another()
        items = self._inference.entrance.responses(checked, arrivals := Arrivals(share))
        # tasks begin, and so send, in the order in which they were made
        answer = partial(self._answer, items, arrivals, share, written, before)
        answering = self._loop.create_task(self._req.turn.take(answer, begins_at_once=True))
        self._shares.begin(is_first=not self._requests)
        self._requests[answering] = _Request(answering, own_id, size)
        self._socket.rest(False)
        self._bytes += size
        answering.add_done_callback(self._have_answered)
        if not is_decoupled:
            self._latest = answering
        if sending is not None:
            answering.add_done_callback(partial(wake, sending))
            await sending

    def _have_answered(self, answering: asyncio.Task[None]) -> None:
        request = self._requests.pop(answering)
        self._shares.end(was_last=not self._requests)
        self._socket.rest(not self._requests)
        self._bytes -= request.size
        self._req.hold(-request.size)
        if self._latest is answering:
            self._latest = None
        if self._room is not None:
            wake(self._room)

    # ----------------------------------------------------------------- answers

    async def _answer(
        self,
        items: Any,
        arrivals: Arrivals,
        share: Share,
        written: response_encoding.ResponseFormat,
        before: asyncio.Task[None] | None,
    ) -> None:
        try:
            async with aclosing(items) as responses:
                async for item in responses:
                    if before is not None:
                        await asyncio.wait((before,))
                    await self._send_item(item, arrivals, share, written)
                    del item  # its memory may be the model's
                    if self._req.turn.is_over:
                        await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001 - an edge: the other requests go on
            await self._send_document(_error(written.request_id, _as_answer(error)))
        finally:
            share.release()

    async def _send_item(
        self,
        item: StreamItem,
        arrivals: Arrivals,
        share: Share,
        written: response_encoding.ResponseFormat,
    ) -> None:
        if item.error is not None:
            await self._send_document(
                _error(written.request_id, item.error, is_final=item.is_final)
            )
            return
        body = item.body or _NO_BODY
        size = response_encoding.size_of_response(body)
        held = share.held
        if size > INLINE_BYTES:
            if arrivals.pass_on():
                share.add(size)
            elif not await share.wait(size):
                raise Unavailable(errors.TOO_MANY_UNREAD)
        body = body._replace(parameters={**body.parameters, _FINAL: item.is_final})
        encoded = written.encode(body) or await written.encode_aside(body)
        del body, item
        _, text, tail = encoded
        headers = dict(encoded[0])
        length = headers.get("inference-header-content-length")
        if length is None:
            await self._socket.send(TEXT, (text, *tail))
        else:
            prefix = int(length).to_bytes(_LENGTH_BYTES, "little")
            await self._socket.send(BINARY, (prefix, text, *tail))
        share.add(min(0, held - share.held))

    async def _send_error(self, message: Message, error: ZmqTritonError, own_id: str = "") -> None:
        await self._send_document(_error(own_id or _id_of(message), error))

    async def _send_document(self, document: dict[str, Any]) -> None:
        await self._socket.send(TEXT, (json_documents.write(document),))

    # -------------------------------------------------------------- the end

    def _is_quiet(self) -> bool:
        is_quiet = not self._requests and self._loop.time() - self._asked_at > _QUIET_S
        return is_quiet and not (self._sequences and not self._gateway.is_ending)


def _divided(message: Message) -> tuple[Any, int | None]:
    """Return the body of a message, and the length of its JSON; None if it is JSON alone.

    Raises InvalidArgument.
    """
    if message.opcode == TEXT:
        return message.data, None
    length = int.from_bytes(message.data[:_LENGTH_BYTES], "little")
    body = memoryview(message.data)[_LENGTH_BYTES:]
    if not 0 < length <= len(body):
        raise InvalidArgument(
            "a binary message is the length of its JSON in 4 bytes, little endian, the JSON and "
            f"the tensors; got a length of {length} and {len(body)} bytes"
        )
    return body, length


def _id_of(message: Message) -> str:
    """Return the client's id of a request that was refused, as far as it can be read.

    Other clients would wait while a long document is read, so its id must be its first member.
    """
    try:
        body, length = _divided(message)
        text = body if length is None else body[:length]
        if len(text) > _MAX_ID_BYTES:
            first = _FIRST_ID.match(text[:_MAX_ID_BYTES])
            return str(first[1], "utf-8", "replace") if first else ""
        document = orjson.loads(text)
        own_id = document.get("id", "")
    except (InvalidArgument, ValueError, AttributeError):
        return ""
    return own_id if type(own_id) is str else ""


def _error(own_id: str, error: ZmqTritonError, *, is_final: bool = True) -> dict[str, Any]:
    document: dict[str, Any] = {"id": own_id} if own_id else {}
    document["error"] = error.text
    document["status"] = error.http_status
    document["parameters"] = {_FINAL: is_final}
    return document


def _as_answer(error: Exception) -> ZmqTritonError:
    """Return the error for the client."""
    if isinstance(error, ZmqTritonError):
        return error
    _log.error("a request on a WebSocket failed; see the server's log", exc_info=error)
    return InternalError("internal error")
