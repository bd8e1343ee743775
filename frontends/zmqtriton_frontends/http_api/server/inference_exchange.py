"""One inference on a connection that goes straight to the gateway: its body, and its answer."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import Any, Protocol

from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.errors import NO_MEMORY, TOO_MANY_UNREAD, Unavailable
from zmqtriton_frontends.http1 import responses
from zmqtriton_frontends.http_api.asgi.problems import FAREWELL
from zmqtriton_frontends.http_api.inference import large_answer
from zmqtriton_frontends.http_api.inference.response_encoding import Encoded
from zmqtriton_frontends.http_api.server.channel import Channel
from zmqtriton_frontends.http_api.server.fast_path import (
    FastPath,
    InferenceHead,
    PendingHttpInference,
    refusal,
)
from zmqtriton_frontends.process.ledger import Client, Ledger, Share
from zmqtriton_frontends.tensors.arena_body import ArenaBody, ArenaBuffer

_NOTHING = memoryview(b"")
_JSON = b"content-type: application/json\r\n"


class Owner(Protocol):
    """The connection."""

    channel: Channel
    is_closed: bool
    #: The client, for what is held for it.
    client: Client

    @property
    def last_fields(self) -> bytes:
        """The fields that every answer has."""

    def answered(self) -> None:
        """Take note that the answer to the request was written."""

    def leave(self) -> None:
        """Leave: the next answer is the last."""


class InferenceExchange:
    __slots__ = (
        *("_buffer", "_deadline_ns", "_early", "_fast_path", "_head", "_is_refused", "_ledger"),
        *("_owner", "_pending", "_sending", "_share", "arena_body", "has_begun_answer"),
    )

    def __init__(
        self, owner: Owner, fast_path: FastPath, head: InferenceHead, ledger: Ledger
    ) -> None:
        self._owner = owner
        self._fast_path = fast_path
        self._head = head
        #: It counts from the head, however long the body takes.
        self._deadline_ns = head.timeout_ns and time.monotonic_ns() + head.timeout_ns
        self._ledger = ledger
        self.has_begun_answer = False
        #: A small body, or what has come of it.
        self._early: bytes | bytearray = b""
        #: What receives a large body.
        self.arena_body: ArenaBody | None = fast_path.arena_body(head) if head.is_large else None
        #: Where a large body is, until it is answered.
        self._buffer: ArenaBuffer | None = None
        #: What an incomplete body, or an answer that is not read, takes.
        self._share: Share | None = None
        self._is_refused = False
        self._pending: PendingHttpInference | None = None
        self._sending: asyncio.Task[None] | None = None
        if self.arena_body is not None:
            self.arena_body.add(_NOTHING)  # it may have room before anything comes

    @property
    def held_bytes(self) -> int:
        """The memory of this process that it takes."""
        return 0 if self._share is None else self._share.held

    # ---------------------------------------------------------------- the body

    def say_continue(self) -> None:
        """Tell a client that waits for it to send the body."""
        self._owner.channel.write(responses.CONTINUE)

    def receive(self, part: bytes) -> None:
        if self._is_refused:
            return
        if self.arena_body is not None:
            self.arena_body.add(memoryview(part))
            held = self.arena_body.held_bytes
        else:
            self._early = bytearray(self._early) + part if self._early else part
            held = len(self._early)
        if self._share is not None or (held and len(part) < self._head.body_bytes):
            self._hold(held)

    def _hold(self, held: int) -> None:
        """Account for what of a body is in this process's own memory; drop it if that is short."""
        if self._share is None:
            self._share = Share(self._ledger.requests, self._owner.client)
        if held < self._share.held:
            self._share.release()
        if not self._share.take(held - self._share.held):
            self._is_refused = True
            self._free()

    def end_body(self) -> None:
        """Begin to answer: all of the body has come."""
        if self._is_refused:
            self._answer(*refusal(Unavailable(NO_MEMORY)))
            return
        body: Any = self._early
        if self.arena_body is not None:
            arena_body, self.arena_body = self.arena_body, None
            self._buffer = arena_body.whole()
            body = self._buffer.data
        self._early = b""
        self._pending = pending = PendingHttpInference(
            *(self._fast_path, self._head, self._answer, self._has_room, self._deadline_ns)
        )
        pending.begin(body)

    def _free(self) -> None:
        self._early = b""
        if self.arena_body is not None:
            self.arena_body.drop()
            self.arena_body = None
        if self._buffer is not None:
            self._buffer.free()
            self._buffer = None
        if self._share is not None:
            self._share.release()
            self._share = None

    def cancel(self) -> None:
        """Cancel it: nobody waits for the answer any more."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.cancel()
        self._free()
        # a task that is cancelled has a traceback, which would keep what was to be sent, and this
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.cancel()

    # --------------------------------------------------------------- the answer

    def _has_room(self, size: int) -> bool:
        """Account for an answer until it is read; False if there is no memory for it."""
        if self._buffer is not None or self._share is not None:
            self._free()  # what of the request is needed is leased
        self._share = Share(self._ledger.answers, self._owner.client)
        return self._share.take(size)

    def _answer(self, status: int, encoded: Encoded) -> None:
        headers, text, tail = encoded
        self._pending = None
        if self._buffer is not None or self._share is not None:
            self._free()  # what of it is needed is leased
        owner = self._owner
        if owner.is_closed:
            return
        if text == FAREWELL:
            owner.leave()
        size = len(text) + sum(map(len, tail)) if tail else len(text)
        if size > INLINE_BYTES and not self._has_room(size):
            self._answer(*too_many_unread())
            return
        named = _written(headers) if headers else _JSON
        line, last = responses.STATUS_LINES[status], owner.last_fields
        head = b"%s%scontent-length: %d\r\n%s\r\n" % (line, named, size, last)
        if size > INLINE_BYTES:
            self.has_begun_answer = True
            sending = self._send(head, [text, *tail])
            self._sending = asyncio.get_running_loop().create_task(sending)
            return
        owner.channel.write(b"".join((head, text, *tail)) if tail else head + text)
        owner.answered()

    async def _send(self, head: bytes, tail: list[bytes | memoryview]) -> None:
        owner = self._owner
        async with aclosing(large_answer.pieces(head, tail, time.monotonic)) as pieces:
            async for piece in pieces:
                owner.channel.write_all(piece)
                if owner.channel.unread is not None:
                    await owner.channel.drain()
        self._sending = None
        self._free()
        owner.answered()


def too_many_unread() -> tuple[int, Encoded]:
    """Return what is answered in place of what there is no memory for until it is read."""
    return refusal(Unavailable(TOO_MANY_UNREAD))


def _written(headers: tuple[tuple[str, str], ...]) -> bytes:
    text = ""
    for name, value in headers:
        text += f"{name}: {value}\r\n"
    lines = text.encode("latin-1")
    return lines if headers[0][0] == "content-type" else _JSON + lines
