"""The kinds of RPCs over our own HTTP/2: what is done with the messages that come.

connection.py asks call_of() for each RPC that begins.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from zmqtriton_floor.errors import InternalError
from zmqtriton_frontends.grpc_api.inference.infer import PendingGrpcInference
from zmqtriton_frontends.grpc_api.inference.raw_tensors import tensors_at
from zmqtriton_frontends.grpc_api.transport.account import Account
from zmqtriton_frontends.grpc_api.transport.call_headers import HEADS, TAIL, Opening
from zmqtriton_frontends.grpc_api.transport.lifecycle import INFERENCE, RpcLifecycle, failed
from zmqtriton_frontends.grpc_api.transport.message_framing import (
    Assembly,
    Message,
    TooLargeError,
    prefix,
)
from zmqtriton_frontends.grpc_api.transport.stream_call import NativeCall, Refused
from zmqtriton_frontends.http2.connection import Connection
from zmqtriton_frontends.http2.stream import Stream
from zmqtriton_frontends.tensors.arena_body import MIN_BYTES, ArenaBuffer, arena_body_factory

#: How long a client may keep the memory that its response lies in.
_PATIENCE_S = 1.0


class OneRequest(NativeCall):
    """An RPC with one message from the client."""

    __slots__ = ("_has_request",)

    def on_begin(self) -> None:
        self._has_request = False

    def on_message(self, is_compressed: bool, message: Any) -> None:
        if self._has_request:
            self._fail(InternalError("a second request where there may be one"))
        else:
            self._has_request = True
            self._ask(is_compressed, message)

    def on_end(self) -> None:
        if not self._has_request:
            self._fail(InternalError("the request is missing"))

    def _ask(self, is_compressed: bool, message: Any) -> None:
        self._start(is_compressed, message)


class UnaryCall(OneRequest):
    """One request, one response."""

    __slots__ = ("_asked", "_gathered", "_is_asking")

    def on_begin(self) -> None:
        super().on_begin()
        self._is_asking = False
        #: The request, where it lies in the arena.
        self._gathered: ArenaBuffer | None = None
        #: What the handler has begun without a task.
        self._asked: PendingGrpcInference | None = None

    def _new_assembly(self) -> Assembly:
        if self.rpc.category != INFERENCE:
            return super()._new_assembly()
        answering = self._answering
        large = arena_body_factory(answering.gateway.payload, answering.announced, tensors_at)
        return Assembly(self._account.requests, large, MIN_BYTES)

    def _ask(self, is_compressed: bool, message: Any) -> None:
        if type(message) is ArenaBuffer:
            self._gathered, message = message, message.data
        if self.rpc.quick is None or is_compressed or self._compression:
            self._start(is_compressed, message)
        else:
            self._ask_quickly(message)

    def _ask_quickly(self, message: Any) -> None:
        answering = self._answering
        answering.begin()
        self._is_asking = True
        try:
            answering.check()
            assert self.rpc.quick is not None
            self._asked = self.rpc.quick(message, self, self)
        except Exception as error:  # noqa: BLE001 - an edge, as above
            self.set_exception(error)

    def set_result(self, response: list[bytes | memoryview], /) -> None:
        if self._stop_asking():
            size = sum(map(len, response))
            try:
                self._account.check_answer(size)
            except TooLargeError as error:
                self._fail(error)
                return
            self.connection.answer(self, HEADS[""], [prefix(size), *response], TAIL)
            if self.outgoing:
                self._account.note_answers(self.connection.waiting_bytes)
                self._loop.call_later(_PATIENCE_S, self.keep_outgoing)

    def set_exception(self, error: Exception, /) -> None:
        if self._stop_asking():
            self._fail(failed(self.rpc, error))

    def _stop_asking(self) -> bool:
        """Return whether there is somebody to be answered."""
        if not self._is_asking:
            return False
        self._is_asking = False
        self._asked = None
        self._free()
        self._answering.ended()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        return True

    def _free(self) -> None:
        """Free the request; what was placed meanwhile outlives it."""
        if self._gathered is not None:
            self._gathered.free()
            self._gathered = None

    def _end(self) -> None:
        asked = self._asked
        if self._stop_asking() and asked is not None:
            asked.cancel()
        super()._end()
        self._free()

    async def _answer(self, *request: Any) -> None:
        is_compressed, message = request
        assert self.rpc.unary is not None
        if is_compressed:
            message = await self._opened(is_compressed, message)
        try:
            response = await self.rpc.unary(message, self)
        finally:
            self._free()
        if not self._compression:
            pieces = prefix(len(response)), response
        else:
            pieces = await self._packed(response)
        if self.is_open and not self.has_ended:
            self._account.check_answer(len(response))
            self.connection.answer(self, HEADS[self._compression], pieces, TAIL)
            self._account.note_answers(self.connection.waiting_bytes)


class WatchCall(OneRequest):
    """One request, many responses. Lasts as long as the client likes, so nobody waits for it."""

    __slots__ = ()

    async def _answer(self, *request: Any) -> None:
        is_compressed, message = request
        assert self.rpc.stream is not None
        message = await self._opened(is_compressed, message)
        self._answering.ended()
        try:
            async for response in self.rpc.stream(bytes(message), self):
                await self._send(response)
        finally:
            self._answering.begin()


class ExchangeCall(NativeCall):
    """Many requests, many responses."""

    __slots__ = ("_messages", "_waiting")

    def on_begin(self) -> None:
        self._messages: deque[tuple[bool, Message]] = deque()
        #: What the handler waits for, when it wants a request.
        self._waiting: asyncio.Future[None] | None = None
        self._start()

    def on_message(self, is_compressed: bool, message: Message) -> None:
        self._messages.append((is_compressed, message))
        self.is_holding = True
        self._wake()

    def on_end(self) -> None:
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def _requests(self) -> AsyncIterator[bytes]:
        messages = self._messages
        while True:
            while not messages:
                if self.was_ended:
                    if self._assembly.is_amid:
                        raise InternalError("the last request is cut off")
                    return
                self._waiting = self._loop.create_future()
                await self._waiting
            is_compressed, message = messages.popleft()
            if not messages:
                self.is_holding = False
                self.connection.give_credit(self)
            if is_compressed:
                message = await self._opened(is_compressed, message)
            yield bytes(message)

    async def _answer(self, *request: Any) -> None:
        assert self.rpc.exchange is not None
        async with aclosing(self.rpc.exchange(self._requests(), self)) as responses:
            async for response in responses:
                await self._send(response)


def call_of(
    connection: Connection,
    number: int,
    opening: Opening,
    answering: RpcLifecycle,
    account: Account,
    compression: str,
) -> Stream:
    """Return the stream that answers it."""
    rpc = opening.rpc
    if rpc is None:
        return Refused(connection, number, opening.refusal)
    kind: type[NativeCall] = UnaryCall
    if rpc.exchange is not None:
        kind = ExchangeCall
    elif rpc.stream is not None:
        kind = WatchCall
    return kind(connection, number, opening, answering, account, compression)
