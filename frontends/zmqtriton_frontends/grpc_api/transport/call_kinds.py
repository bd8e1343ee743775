"""The kinds of RPCs over our own HTTP/2, which differ in their treatment of messages.

connection.py calls begin_of() for a maker of RPCs that begin with the same headers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.errors import DeadlineExceeded, InternalError
from zmqtriton_frontends.grpc_api.call import (
    FREE_BYTES,
    FREE_REQUEST_BYTES,
    CallFacts,
    NoRequestRoomError,
    NoRoomError,
    PendingRpc,
    Response,
    client_error,
    hold_answer,
)
from zmqtriton_frontends.grpc_api.inference.response import Pieces, copy_some
from zmqtriton_frontends.grpc_api.transport.account import CANCELLED, OK, Account, by_status
from zmqtriton_frontends.grpc_api.transport.call_headers import HEADS, RpcHeaders
from zmqtriton_frontends.grpc_api.transport.lifecycle import INFERENCE, RpcLifecycle
from zmqtriton_frontends.grpc_api.transport.message_framing import (
    Message,
    holder,
    prefix,
)
from zmqtriton_frontends.grpc_api.transport.stream_call import (
    PATIENCE_S,
    CallContext,
    NativeCall,
    RefusedRpc,
    opened,
    packed,
)
from zmqtriton_frontends.http2 import frames
from zmqtriton_frontends.http2.connection import Begin, Http2Connection
from zmqtriton_frontends.inference.open_sequences import TooLateError
from zmqtriton_frontends.process.client_progress import UNSENT_BYTES, limit_unsent_bytes
from zmqtriton_frontends.process.futures import wake
from zmqtriton_frontends.process.ledger import release
from zmqtriton_frontends.tensors.arena_body import MIN_BYTES, ArenaBuffer

#: Messages of a stream that are handled before others have their turn.
_TURN_MESSAGES = 16


class UnaryCall(NativeCall):
    """One request, one response."""

    _is_asking = False
    #: The request, where it lies in the arena.
    _gathered: ArenaBuffer | None = None
    #: The RPC that the handler has begun to answer.
    _inference: PendingRpc | None = None

    def expire(self) -> None:
        self._fail(DeadlineExceeded("the request did not come"))

    def on_end(self) -> None:
        if not self._has_request:
            self._fail(InternalError("the request is missing"))

    def on_message(self, is_compressed: bool, message: Any) -> None:
        self._has_request = self._has_all = True
        if type(message) is ArenaBuffer:
            self._gathered, message = message, message.data
        context = self.context
        self._is_asking = True
        try:
            size = len(message) if is_compressed or context.rpc.keeps_request else 0
            if size > FREE_REQUEST_BYTES:  # it stays until the call ends
                self._request_room = kept = self.requests.another()
                if not kept.take(size):
                    raise NoRequestRoomError
            if is_compressed:
                self._task = self._loop.create_task(self._ask_inflated(message))
            else:
                assert context.rpc.unary is not None
                self._inference = context.rpc.unary(message, self, self)
        except Exception as error:  # noqa: BLE001 - an edge: whatever it is, the client gets a status
            self.set_exception(error)

    async def _ask_inflated(self, message: Any) -> None:
        rpc = self.context.rpc
        try:
            if rpc.check is not None:
                rpc.check(self)  # before anything is made of what it sends
            message = await opened(self, message)
            if self.context.large is not None and len(message) > INLINE_BYTES:
                gather = self.context.answering.gather(message, holder(self.requests))
                del message
                self._gathered = await gather
                message = self._gathered.data
            self._task = None
            assert rpc.unary is not None
            self._inference = rpc.unary(message, self, self)
        except Exception as error:  # noqa: BLE001 - an edge, as above
            self.set_exception(error)

    def set_result(self, response: Response, /, compression: str = "") -> None:
        """Send the response; compress it before that if it is not yet as the client wants it."""
        if compression != self.context.compression and self._is_asking:
            self._inference = None
            self._free()
            self._task = self._loop.create_task(self._pack(b"".join(response)))
        elif self._stop_asking():
            size, account = sum(map(len, response)), self.context.account
            may_lack_room = size > FREE_BYTES or account.answers.held
            if may_lack_room and not account.answers.has_room(size):
                self._fail(NoRoomError())
                return
            by_status[OK] += 1
            pieces = [prefix(bool(compression), size), *response]
            self.connection.answer(self, HEADS[compression], pieces, self._tail)
            if self.outgoing:
                account.answers.add(self.outgoing_bytes)
                self._loop.call_later(PATIENCE_S, self.work, partial(copy_some, self.outgoing))

    async def _pack(self, response: bytes) -> None:
        compression = self.context.compression
        try:
            hold_answer(self, len(response))
            response = await packed(response, compression)
        except Exception as error:  # noqa: BLE001 - an edge, as above
            self.set_exception(error)
        else:
            self._task = None
            self.set_result([response], compression)

    def set_exception(self, error: Exception, /) -> None:
        if not self._stop_asking():
            return
        if type(error) is TooLateError:
            self.connection.refuse_unseen(self)
            self.on_reset()
        else:
            self._fail(client_error(self.context.rpc.method, error))

    def _stop_asking(self) -> bool:
        """End the wait for the handler's response; return False if the wait ended before."""
        if not self._is_asking:
            return False
        self._is_asking = False
        self._inference = None
        if self._gathered is not None:
            self._free()
        if self._assembly is not None:
            self._drop()
        if self._held is not None or self._encoded is not None:
            release(self._encoded, self._held, self._request_room)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        return True

    def _free(self) -> None:
        """Free the request's memory; tensors that were placed before outlive it."""
        if self._gathered is not None:
            self._gathered.free()
            self._gathered = None

    def _end(self) -> None:
        inference = self._inference
        if self._stop_asking() and inference is not None:
            inference.cancel()
        super()._end()
        self._free()


class ExchangeCall(NativeCall):
    """Many requests, many responses."""

    #: Done when there is room for the handler's next message.
    _room: asyncio.Future[None] | None = None

    def __init__(self, context: CallContext, connection: Http2Connection, number: int) -> None:
        super().__init__(context, connection, number)
        limit_unsent_bytes(context.info("socket"))
        self._messages: deque[tuple[bool, Message]] = deque()
        #: Done when there is a request for the handler, or none will come.
        self._waiting: asyncio.Future[None] | None = None
        self._task = self._loop.create_task(self._survive())

    def on_message(self, is_compressed: bool, message: Message) -> None:
        self._has_request = True
        self._messages.append((is_compressed, message))
        size = len(message)
        self.kept_bytes += size
        self.connection.kept_bytes += size
        self.is_holding = True
        wake(self._waiting)

    def on_end(self) -> None:
        wake(self._waiting)

    async def _requests(self) -> AsyncIterator[Any]:
        messages, begun, taken = self._messages, self._loop.time(), 0
        while True:
            taken += 1
            if taken > _TURN_MESSAGES:
                await self.context.account.client.wait_for_turn(begun)
                begun, taken = self._loop.time(), 0
            while not messages:
                if self.was_ended:
                    if self.is_amid_message:
                        raise InternalError("the last request is cut off")
                    return
                self._waiting = self._loop.create_future()
                await self._waiting
                begun, taken = self._loop.time(), 0
            is_compressed, message = messages.popleft()
            if self.is_open:
                size = len(message)
                self.kept_bytes -= size
                self.connection.kept_bytes -= size
            if not messages:
                self.is_holding = False
                self.connection.give_credit(self)
            if is_compressed:
                message = await opened(self, message)
                size = len(message) if len(message) > INLINE_BYTES else 0
                if not self.requests.change(size):  # for the copy in the arena
                    del message  # which the error would keep
                    raise NoRequestRoomError
            whole = [message]
            del message
            yield whole.pop()  # which this does not keep while the next one is not wanted

    def on_sent(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    # -------------------------------------------------------------- the answer

    async def _survive(self) -> None:
        """Run the handler in a task, and turn every fault into a status; call this once."""
        assert self.context.rpc.exchange is not None
        try:
            async with aclosing(self.context.rpc.exchange(self._requests(), self)) as responses:
                async for response in responses:
                    sending = self._send(response)
                    del response  # which may lie in the memory of a model
                    await sending
            if not self.has_ended:
                by_status[OK] += 1
                tail = self._tail
                self.connection.finish(self, tail if self._has_head else HEADS[""] + tail)
        except Exception as error:  # noqa: BLE001 - an edge: whatever it is, the client gets a status
            self._fail(client_error(self.context.rpc.method, error))
        finally:
            self._task = None  # which is not cancelled
            self._end()
            release(self._encoded, self._held)
            if not self.has_ended:  # the handler was cancelled, and not by us
                by_status[CANCELLED] += 1
                self.connection.reset(self, frames.CANCEL)

    async def _send(self, message: bytes | Pieces) -> None:
        """Send a message; return when there is room for the next one."""
        compression = self.context.compression
        pieces: Sequence[bytes | memoryview]
        if compression:
            data = await packed(bytes(message), compression)
            pieces = prefix(True, len(data)), data
            del data
        elif type(message) is Pieces:
            pieces = prefix(False, len(message)), *message.parts
            message.parts.clear()  # copied no further
        else:
            pieces = prefix(False, len(message)), bytes(message)
        is_elsewhere = type(message) is Pieces
        del message
        if not self._has_head:
            self._has_head = True
            self.connection.begin(self, HEADS[compression])
        self.connection.send(self, pieces)
        del pieces
        if is_elsewhere and self.outgoing:
            self._loop.call_later(PATIENCE_S, self.work, partial(copy_some, self.outgoing))
        while self.outgoing_bytes > UNSENT_BYTES:
            self._room = self._loop.create_future()
            await self._room


def begin_of(
    opening: RpcHeaders,
    answering: RpcLifecycle,
    account: Account,
    compression: str,
    info: Callable[[str], Any],
) -> Begin:
    """Return a maker of the objects that answer RPCs with these headers."""
    rpc = opening.rpc
    if rpc is None:
        return partial(RefusedRpc, opening)
    is_inference = rpc.category == INFERENCE
    if compression not in opening.accepts or not is_inference:
        compression = ""
    large = answering.large_body if is_inference and rpc.exchange is None else None
    whole_bytes = account.requests.max_message
    context = CallContext(
        opening,
        rpc,
        answering,
        account,
        compression,
        info,
        large,
        whole_bytes if large is None else min(MIN_BYTES, whole_bytes),
        CallFacts.of(opening.metadata, account.client.sequences),
        asyncio.get_running_loop(),
    )
    return partial(UnaryCall if rpc.exchange is None else ExchangeCall, context)
