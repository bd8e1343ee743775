"""One inference on a connection: its body as it comes, and the writing of its response.

Errors are reported after the body has come: an answer amid a body would be lost with the
connection. The body of such a request is dropped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import aclosing
from functools import partial
from typing import Any

from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.errors import NO_MEMORY, TOO_MANY_UNREAD, Unavailable
from zmqtriton_floor.wire import ResponseBody, make
from zmqtriton_frontends import http1
from zmqtriton_frontends.gateway.pending import Pending
from zmqtriton_frontends.http_api.asgi.request import DROP_BYTES, too_large
from zmqtriton_frontends.http_api.inference import response_encoding
from zmqtriton_frontends.http_api.inference.heads import HttpSink, InferenceHead, refusal
from zmqtriton_frontends.http_api.inference.infer import Body, Inference
from zmqtriton_frontends.http_api.inference.response_encoding import Encoded, ResponseFormat
from zmqtriton_frontends.http_api.server.channel import Exchange, Owner, by_status
from zmqtriton_frontends.http_api.server.inference_heads import InferenceHeads
from zmqtriton_frontends.process import request_log
from zmqtriton_frontends.process.ledger import Share
from zmqtriton_frontends.tensors.arena_body import NOTHING, ArenaBody, ArenaBuffer

_JSON = b"content-type: application/json\r\n"
#: Writes a header, given as its name and its value.
_as_line = "%s: %s\r\n".__mod__


class ConnectionSink(HttpSink, Exchange):
    """The exchange of an inference from the end of its body on."""

    __slots__ = ("_is_answered", "_owner", "_sending", "_share", "buffer", "has_begun_answer")

    def __init__(self, owner: Owner, inference: Inference, head: InferenceHead) -> None:
        self._owner = owner
        self.head = head
        self.begun_ns = time.monotonic_ns()
        self.pending = Pending(inference.gateway, self, owner.client.sequences)
        self.has_begun_answer = self._is_answered = False
        #: Memory with a large body, until it is answered.
        self.buffer: ArenaBuffer | None = None
        #: Share for an incomplete body, or for an answer that is not read.
        self._share: Share | None = None
        self._sending: asyncio.Task[None] | None = None
        if request_log.is_on:
            request_log.log_request("POST", head.path)

    # -------------------------------------------------------------- the memory

    @property
    def held_bytes(self) -> int:
        return 0 if self._share is None else self._share.held

    def hold(self, size: int) -> None:
        if self._share is None:
            if size < 0:
                return  # given back with everything else
            client = self._owner.client
            self._share = Share(client.ledger.requests, client)
        if not self._share.change(size):
            raise Unavailable(NO_MEMORY)

    def free(self) -> None:
        """Give back the memory of the request, or of its answer."""
        if self.buffer is not None:
            self.buffer.free()
            self.buffer = None
        if self._share is not None:
            self._share.release()
            self._share = None

    def cancel(self) -> None:
        if not self._is_answered:
            self._is_answered = True
            self.pending.cancel()
        self.free()
        # a task that is cancelled has a traceback, which would keep what was to be sent, and this
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.cancel()

    # --------------------------------------------------------------- the answer

    def _has_room(self, size: int) -> bool:
        """Book an answer until it is read; False if there is no room for it."""
        if self.buffer is not None or self._share is not None:
            self.free()  # what of the request is needed is leased
        client = self._owner.client
        self._share = Share(client.ledger.answers, client)
        return self._share.take(size)

    def respond(
        self, pending: Pending, response: ResponseBody, /
    ) -> Coroutine[Any, Any, None] | None:
        """Encode the response and write it; later, if that takes long or reports are to be made."""
        form = pending.model, pending.request_id, pending.form, self.head.accepted
        written = make(ResponseFormat, form)
        encoded = None if pending.reports else written.encode(response)
        if encoded is None:
            return self._respond_late(written, pending, response)
        self.answer(200, encoded)
        return None

    async def _respond_late(
        self, written: ResponseFormat, pending: Pending, response: ResponseBody
    ) -> None:
        self.answer(200, await written.encode_late(response, pending.reports, self._has_room))

    def answer(self, status: int, encoded: Encoded) -> None:
        headers, text, tail = encoded
        if self.buffer is not None or self._share is not None:
            self.free()  # what of it is needed is leased
        owner = self._owner
        if self._is_answered or owner.is_closed:
            return
        size = len(text) + sum(map(len, tail)) if tail else len(text)
        if size > INLINE_BYTES and not self._has_room(size):
            self.answer(*refusal(Unavailable(TOO_MANY_UNREAD)))
            return
        self._is_answered = True
        by_status[status] += 1
        named = _JSON
        if headers:
            lines = "".join(map(_as_line, headers)).encode("latin-1")
            named = lines if headers[0][0] == "content-type" else _JSON + lines
        line = http1.STATUS_LINES.get(status) or http1.status_line(status)
        head = b"%s%scontent-length: %d\r\n%s\r\n" % (line, named, size, owner.last_fields)
        if size > INLINE_BYTES:
            self.has_begun_answer = True
            self._begin_large(head, [text, *tail], size)
            return
        owner.channel.write(b"".join((head, text, *tail)) if tail else head + text)
        owner.answered()

    def _begin_large(self, head: bytes, tail: list[bytes | memoryview], size: int) -> None:
        owner = self._owner
        if size <= response_encoding.STEP_BYTES:
            owner.channel.write_all((head, *tail))
            if owner.channel.unread is None:  # the kernel has taken most of it
                self.free()
                owner.answered()
                return
            tail.clear()
        self._sending = asyncio.get_running_loop().create_task(self._send_large(head, tail))

    async def _send_large(self, head: bytes, tail: list[bytes | memoryview]) -> None:
        owner = self._owner
        await owner.channel.drain()
        async with aclosing(response_encoding.pieces(head, tail, time.monotonic)) as pieces:
            async for piece in pieces:
                owner.channel.write_all(piece)
                await owner.channel.drain()
        self._sending = None
        self.free()
        owner.answered()


class InferenceExchange(Exchange):
    """The exchange of an inference until its body has come, where that does not come at once."""

    has_begun_answer = False

    def __init__(self, owner: Owner, inferences: InferenceHeads, head: InferenceHead) -> None:
        self._owner = owner
        self._inference = inferences.inference
        self._sink = ConnectionSink(owner, inferences.inference, head)
        self._head = head
        #: A body, or what has come of it.
        self._early: bytes | bytearray = b""
        #: Receiver of a large body.
        self.arena_body: ArenaBody | None = inferences.arena_body(head) if head.is_large else None
        self._received_bytes = 0
        self._is_refused = head.refusal is not None
        #: Bytes of a refused body that may still be dropped before it is answered.
        self._drop_bytes = DROP_BYTES
        if self.arena_body is not None:
            self.arena_body.add(NOTHING)  # it may have room before anything comes

    @property
    def held_bytes(self) -> int:
        return self._sink.held_bytes

    def say_continue(self) -> None:
        self._owner.channel.write(http1.CONTINUE)

    def receive(self, part: bytes, *, is_last: bool) -> None:
        if part:
            self._receive_part(part)
        if is_last:
            self._owner.client.take_turn(self._end_in_turn)

    def _end_in_turn(self) -> None:
        if self._owner.exchange is self:  # it may be cancelled
            self.body_received(is_last=True)

    def _receive_part(self, part: bytes) -> None:
        size, head = len(part), self._head
        self._received_bytes += size
        if self._is_refused:
            self._drop_bytes -= size
            if self._drop_bytes < 0:
                self._answer_refused()  # the last of the connection, amid the body
            return
        if self.arena_body is not None:
            self.arena_body.add(memoryview(part))
            held = self.arena_body.held_bytes
        elif self._early:
            if type(self._early) is bytes:
                self._early = bytearray(self._early)
            self._early += part
            held = len(self._early)
        else:
            self._early, held = part, size
        if self._received_bytes > head.max_bytes:
            self._refuse_body(DROP_BYTES)
        elif self._sink.held_bytes or (held and held != head.unbooked_bytes):
            self._hold(held)

    def _hold(self, held: int) -> None:
        """Book the memory of a body; drop the body if there is no room."""
        try:
            self._sink.hold(held - self._sink.held_bytes)
        except Unavailable:
            self._refuse_body(http1.MAX_BODY_BYTES)

    def _refuse_body(self, drop_bytes: int) -> None:
        self._is_refused, self._drop_bytes = True, drop_bytes
        self._free()
        self._sink.free()

    def _answer_refused(self) -> None:
        head, sink = self._head, self._sink
        answer = head.refusal or refusal(
            too_large("JSON", self._received_bytes, head.max_bytes)
            if self._received_bytes > head.max_bytes
            else Unavailable(NO_MEMORY)
        )
        sink.pending.cancel()  # it has not begun
        sink.answer(*answer)

    def body_received(self, *, is_last: bool) -> None:
        """Book the memory of a large body so far; begin to answer after the last part."""
        sink, held = self._sink, 0 if self.arena_body is None else self.arena_body.held_bytes
        if held and held != sink.held_bytes:
            self._hold(held)
        if not is_last:
            return
        if self._is_refused:
            self._answer_refused()
            return
        body: Any = self._early
        if self.arena_body is not None:
            arena_body, self.arena_body = self.arena_body, None
            sink.buffer = arena_body.whole()
            body = sink.buffer.data
            if sink.buffer.is_shared:
                sink.hold(-sink.held_bytes)  # nothing more is held than the model needs
        self._early = b""
        head = self._head
        self._owner.exchange = sink
        if head.coding is None and head.body_bytes is not None:
            self._inference.begin(sink, body)
        else:
            sink.pending.wait(self._unpack(body), partial(self._inference.begin, sink))

    async def _unpack(self, body: Body) -> Body:
        """Return a body inflated, with its tensors where the model can read them."""
        head, sink = self._head, self._sink
        pieces: list[Any] = [body]
        del body
        placing = self._inference.place(pieces, head.fields, self._owner.channel, sink.hold)
        # kept by the sink, and not by the task, which may be cancelled when it has ended
        sink.buffer = buffer = await placing
        if not buffer.is_shared:
            sink.buffer = None
        unpacked: Body = buffer.data
        return unpacked

    def _free(self) -> None:
        self._early = b""
        if self.arena_body is not None:
            self.arena_body.drop()
            self.arena_body = None

    def cancel(self) -> None:
        self._free()
        self._sink.cancel()
