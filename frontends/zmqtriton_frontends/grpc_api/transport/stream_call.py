"""One RPC over our own HTTP/2: passes its messages to the handler, and the answers back.

The base of the kinds of RPCs in call_kinds.py; all of them are the Call that their handler is
given.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_frontends.grpc_api.transport.account import Account
from zmqtriton_frontends.grpc_api.transport.call_headers import (
    HEADS,
    TAIL,
    Metadata,
    Opening,
    only_trailers,
    trailers,
)
from zmqtriton_frontends.grpc_api.transport.lifecycle import (
    FAR_S,
    INFERENCE,
    LATER_S,
    RpcLifecycle,
    details_of,
    failed,
)
from zmqtriton_frontends.grpc_api.transport.message_framing import (
    Assembly,
    Message,
    inflate,
    prefix,
)
from zmqtriton_frontends.http2 import frames
from zmqtriton_frontends.http2.connection import Connection
from zmqtriton_frontends.http2.stream import WINDOW_BYTES, Stream
from zmqtriton_frontends.process import codecs, inflating

_DEADLINE_EXCEEDED = 4
#: The room that is given for a large message at a time.
_LARGE_WINDOW_BYTES = 4 << 20
#: More of a stream's answers do not wait here.
_MOST_UNSENT = 64 * 1024
#: Longer messages are inflated and deflated by a thread.
_LONG = 64 * 1024


class Refused(Stream):
    """An RPC that ended with its headers."""

    __slots__ = ("_block",)

    def __init__(self, connection: Connection, number: int, block: bytes) -> None:
        super().__init__(connection, number)
        self._block = block

    def on_begin(self) -> None:
        self.connection.finish(self, self._block)


class NativeCall(Stream):
    """Any other RPC; subclasses say what is done with messages."""

    __slots__ = (
        "_account",
        "_answering",
        "_assembly",
        "_compression",
        "_deadline",
        "_deadline_ns",
        "_has_head",
        "_loop",
        "_opening",
        "_room",
        "_task",
        "rpc",
    )

    def __init__(
        self,
        connection: Connection,
        number: int,
        opening: Opening,
        answering: RpcLifecycle,
        account: Account,
        compression: str,
    ) -> None:
        super().__init__(connection, number)
        assert opening.rpc is not None
        self.rpc = opening.rpc
        self._opening = opening
        self._answering = answering
        self._account = account
        #: The compression of the answers, or "".
        self._compression = ""
        if compression in opening.accepts and self.rpc.category == INFERENCE:
            self._compression = compression
        self._assembly = self._new_assembly()
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._has_head = False
        #: What the handler waits for, when too much is unsent.
        self._room: asyncio.Future[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._deadline_ns = 0
        wait_s = opening.timeout_s
        if 0 <= wait_s < FAR_S:
            self._deadline_ns = time.monotonic_ns() + int((wait_s + LATER_S) * 1e9)
            self._deadline = self._loop.call_later(wait_s, self._expire)

    def _new_assembly(self) -> Assembly:
        return Assembly(self._account.requests)

    # ------------------------------------------------------------ for handlers

    @property
    def deadline_ns(self) -> int:
        return self._deadline_ns

    @property
    def metadata(self) -> Metadata:
        return self._opening.metadata()

    @property
    def is_cancelled(self) -> bool:
        return not self.is_open

    # -------------------------------------------------------------- the client

    def on_data(self, data: memoryview) -> None:
        try:
            for is_compressed, message in self._assembly.feed(data):
                if self.is_open:
                    self.on_message(is_compressed, message)
        except (ZmqTritonError, MemoryError) as error:
            self._fail(failed(self.rpc, error))
            return
        self._want()

    @property
    def is_amid_message(self) -> bool:
        return self._assembly.is_amid

    def room(self) -> memoryview:
        return self._assembly.room()

    def on_filled(self, size: int) -> None:
        try:
            for is_compressed, message in self._assembly.filled(size):
                self.on_message(is_compressed, message)
        except (ZmqTritonError, MemoryError) as error:
            self._fail(failed(self.rpc, error))
            return
        self._want()

    def _want(self) -> None:
        self.expected = left = self._assembly.left
        self.window_target = max(WINDOW_BYTES, min(left, _LARGE_WINDOW_BYTES))

    def on_message(self, is_compressed: bool, message: Message) -> None:
        """Take one message of the client."""
        raise NotImplementedError

    def on_reset(self) -> None:
        self._end()

    def on_sent(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _expire(self) -> None:
        self._deadline = None
        self._refuse(_DEADLINE_EXCEEDED, "Deadline Exceeded")

    def _fail(self, error: ZmqTritonError) -> None:
        """End the RPC with the error, whatever it was about to do."""
        self._refuse(error.grpc_status, details_of(error.text))

    def _refuse(self, code: int, text: str) -> None:
        if self.is_open and not self.has_ended:
            block = trailers(code, text) if self._has_head else only_trailers(code, text)
            # what waits to be sent may wait for ever
            self.outgoing.clear()
            self.connection.finish(self, block)
        self._end()

    def _end(self) -> None:
        """End: nothing more can be sent."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._assembly.drop()
        # forgotten at once: a cancelled task keeps all that it had seen, the request's memory, too,
        # and would itself be kept until the garbage collector finds it
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    # -------------------------------------------------------------- the answer

    def _start(self, *request: Any) -> None:
        self._task = self._loop.create_task(self._survive(request))

    async def _survive(self, request: tuple[Any, ...]) -> None:
        self._answering.begin()
        try:
            self._answering.check()
            await self._answer(*request)
            if not self.has_ended:
                self.connection.finish(self, TAIL if self._has_head else HEADS[""] + TAIL)
        except Exception as error:  # noqa: BLE001 - an edge: whatever it is, the client gets a status
            self._fail(failed(self.rpc, error))
        finally:
            self._task = None
            self._answering.ended()
            self._assembly.drop()
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
            if not self.has_ended:  # the handler was cancelled, and not by us
                self.connection.reset(self, frames.CANCEL)

    async def _answer(self, *request: Any) -> None:
        """Run the handler and send its answer, without the trailers of a success."""
        raise NotImplementedError

    async def _opened(self, is_compressed: bool, message: Message) -> Message:
        if not is_compressed:
            return message
        encoding, most = self._opening.encoding, self._answering.most_message
        await inflating.budgets.wait(self.connection)
        if len(message) <= _LONG:
            whole = inflate(message, encoding, most)
        else:
            whole = await asyncio.to_thread(inflate, message, encoding, most)
        inflating.budgets.spend(self.connection, len(whole))
        return whole

    async def _packed(self, message: bytes) -> tuple[bytes, bytes]:
        """Return the message as it is sent, after its prefix."""
        if not self._compression:
            return prefix(len(message)), message
        if len(message) <= _LONG:
            packed = codecs.deflate((message,), self._compression)
        else:
            packed = await asyncio.to_thread(codecs.deflate, (message,), self._compression)
        return prefix(len(packed), is_compressed=True), packed

    async def _send(self, message: bytes) -> None:
        """Send a message and return when there is room for the next one."""
        pieces = await self._packed(message)
        if not self._has_head:
            self._has_head = True
            self.connection.begin(self, HEADS[self._compression])
        self.connection.send(self, pieces)
        while self.outgoing_bytes > _MOST_UNSENT:
            self._room = self._loop.create_future()
            await self._room
