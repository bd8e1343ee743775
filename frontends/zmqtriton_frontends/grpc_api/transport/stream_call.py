"""One RPC over our own HTTP/2: passes its messages to the handler, and responses back.

The base of the kinds of RPCs in call_kinds.py; each RPC object is the `RpcCall` of its handler.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from zmqtriton_floor.errors import DeadlineExceeded, InternalError, ZmqTritonError
from zmqtriton_floor.token_file import Grant
from zmqtriton_frontends.grpc_api.call import CallFacts, client_error
from zmqtriton_frontends.grpc_api.handlers import Rpc
from zmqtriton_frontends.grpc_api.transport.account import CANCELLED, Account, by_status
from zmqtriton_frontends.grpc_api.transport.call_headers import (
    TAIL,
    Metadata,
    RpcHeaders,
    metadata_block,
    only_trailers,
    trailers,
)
from zmqtriton_frontends.grpc_api.transport.lifecycle import (
    FAR_S,
    RpcLifecycle,
    details_of,
)
from zmqtriton_frontends.grpc_api.transport.message_framing import (
    PREFIX_BYTES,
    Assembly,
    Message,
    inflate,
    read_prefix,
)
from zmqtriton_frontends.http2.connection import Http2Connection
from zmqtriton_frontends.http2.stream import WINDOW_BYTES, Http2Stream
from zmqtriton_frontends.process import codecs
from zmqtriton_frontends.process.ledger import Share
from zmqtriton_frontends.process.peer_user import Endpoint, place_of
from zmqtriton_frontends.tensors.arena_body import ArenaBody

#: Seconds that a client may keep the memory that its response lies in.
PATIENCE_S = 1.0
#: Bytes of flow-control window that a stream gets at a time for a large message.
_LARGE_WINDOW_BYTES = 4 << 20
#: Largest message, in bytes, that is deflated on the loop; a thread deflates longer ones.
_LONG = 64 * 1024


class CallContext(NamedTuple):
    """The common part of the RPCs that begin with the same headers on one connection."""

    opening: RpcHeaders
    rpc: Rpc
    answering: RpcLifecycle
    account: Account
    #: The compression of the answers, or "".
    compression: str
    #: Returns what the transport knows of the connection, by names.
    info: Callable[[str], Any]
    #: Makes the body of a large request that lies elsewhere.
    large: Callable[[int], ArenaBody] | None
    #: Bytes of the largest message that is not received there.
    whole_bytes: int
    facts: CallFacts
    loop: asyncio.AbstractEventLoop


class RefusedRpc(Http2Stream):
    """An RPC that ended with its headers."""

    def __init__(self, opening: RpcHeaders, connection: Http2Connection, number: int) -> None:
        super().__init__(connection, number)
        by_status[opening.refusal_code] += 1
        connection.finish(self, opening.refusal)


async def packed(message: bytes, compression: str) -> bytes:
    """Return a compressed message."""
    if len(message) <= _LONG:
        return codecs.deflate((message,), compression)
    return await codecs.threads.run(codecs.deflate, (message,), compression)


class NativeCall(Http2Stream):
    """Any RPC that was not refused; subclasses process the messages."""

    grant: Grant | None = None
    deadline_ns = 0
    #: Assembles a message that does not come at once.
    _assembly: Assembly | None = None
    #: A message of the client has come; and no further one may come.
    _has_request = _has_all = False
    _task: asyncio.Task[None] | None = None
    _has_head = False
    #: The trailers of a success.
    _tail = TAIL
    #: Share for what the handler encodes.
    _encoded: Share | None = None
    #: Share for what is made of a request, such as an inflated message.
    _held: Share | None = None
    #: Share for the request, while a task has it.
    _request_room: Share | None = None
    _deadline: asyncio.TimerHandle | None = None

    def __init__(self, context: CallContext, connection: Http2Connection, number: int) -> None:
        super().__init__(connection, number)
        self.context = context
        self.facts = context.facts
        self._loop = context.loop
        wait_s = context.opening.timeout_s
        if 0 <= wait_s < FAR_S:
            self.deadline_ns = time.monotonic_ns() + int(wait_s * 1e9)
            self._deadline = self._loop.call_later(wait_s, self._expire)

    # ------------------------------------------------------------ for handlers

    @property
    def metadata(self) -> Metadata:
        return self.context.opening.metadata()

    def add_trailers(self, pairs: Sequence[tuple[str, str | bytes]]) -> None:
        self._tail += metadata_block(pairs)

    @property
    def answers(self) -> Share:
        if self._encoded is None:
            client = self.context.account.client
            self._encoded = Share(client.ledger.answers, client)
        return self._encoded

    @property
    def requests(self) -> Share:
        if self._held is None:
            client = self.context.account.client
            self._held = Share(client.ledger.requests, client)
        return self._held

    async def turn(self, begun: float) -> None:
        await self.context.account.client.wait_for_turn(begun)

    def work(self, step: Callable[[], bool]) -> None:
        self.context.account.client.work(step)

    @property
    def authorization(self) -> tuple[str, ...]:
        return self.context.opening.authorization

    @property
    def ends(self) -> tuple[Endpoint, Endpoint]:
        info = self.context.info
        return place_of(info("peername")), place_of(info("sockname"))

    # -------------------------------------------------------------- the client

    def on_data(self, data: memoryview) -> None:
        context, size = self.context, len(data)
        try:
            if self._assembly is None:
                if size >= PREFIX_BYTES:
                    compressed, announced = read_prefix(data)
                    is_whole = announced == size - PREFIX_BYTES <= context.whole_bytes
                    if is_whole and compressed <= 1 and not self._has_all:  # nearly always
                        self.on_message(compressed == 1, bytes(data[PREFIX_BYTES:]))
                        return
                self._assembly = Assembly(context.account.requests, context.large)
            self._take(self._assembly, self._assembly.feed(data))
            if self.was_ended and self.is_open:
                self.on_end()
        except (ZmqTritonError, MemoryError) as error:
            self._fail(client_error(context.rpc.method, error))

    @property
    def is_silent(self) -> bool:
        return not (self._has_request or self.is_amid_message)

    @property
    def is_amid_message(self) -> bool:
        return self._assembly is not None and self._assembly.is_amid

    def room(self) -> memoryview:
        return super().room() if self._assembly is None else self._assembly.room()

    def on_filled(self, size: int) -> None:
        assembly = self._assembly
        assert assembly is not None, "it has the room"
        try:
            self._take(assembly, assembly.filled(size))
        except (ZmqTritonError, MemoryError) as error:
            self._fail(client_error(self.context.rpc.method, error))

    def _take(self, assembly: Assembly, messages: list[tuple[bool, Any]]) -> None:
        """Take complete messages, and note how much of the next one is missing."""
        for is_compressed, message in messages:
            if not self.is_open:
                break
            if self._has_all:
                raise InternalError("a second request where there may be one")
            self.on_message(is_compressed, message)
        if assembly.left != self.expected:
            self._expect(assembly.left)
        if not assembly.is_amid:
            self._assembly = None

    def _expect(self, left: int) -> None:
        """Record the number of missing bytes of a message."""
        rpc = self.context.rpc
        if not self.expected and rpc.check is not None and rpc.exchange is None:
            try:
                rpc.check(self)
            except ZmqTritonError as error:
                self._fail(client_error(rpc.method, error))
                return
        self.expected = left
        self.window_target = max(WINDOW_BYTES, min(left, _LARGE_WINDOW_BYTES))

    def on_message(self, is_compressed: bool, message: Message) -> None:
        """Process a complete message of the client."""
        raise NotImplementedError

    def on_reset(self) -> None:
        if self.trailers is None:  # else its end was counted, and not all of it was read
            by_status[CANCELLED] += 1
        self._end()

    def _expire(self) -> None:
        self._deadline = None
        self._refuse(DeadlineExceeded.grpc_status, "Deadline Exceeded")

    def _fail(self, error: ZmqTritonError) -> None:
        """End the RPC with the error."""
        self._refuse(error.grpc_status, details_of(error.text), error.retry_after_ms)

    def _refuse(self, code: int, text: str, retry_after_ms: int = 0) -> None:
        if self.is_open and not self.has_ended:
            by_status[code] += 1
            make = trailers if self._has_head else only_trailers
            block = make(code, text, retry_after_ms)
            # what waits to be sent may wait for ever
            if self.outgoing:
                self.outgoing.clear()
            self.connection.finish(self, block)
        self._end()

    def _end(self) -> None:
        """End the RPC: nothing more can be sent."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._drop()
        # forgotten at once: a cancelled task keeps all that it had seen, the request's memory, too,
        # and would itself be kept until the garbage collector finds it
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    def _drop(self) -> None:
        """Drop the message that is coming: nothing more will come."""
        if self._assembly is not None:
            self._assembly.drop()


async def opened(call: NativeCall, message: Message) -> Message:
    """Return an inflated message; its memory is accounted for until the next one is inflated."""
    context, held = call.context, call.requests
    held.release()
    encoding, requests = context.opening.encoding, context.account.requests
    return await inflate(message, encoding, requests, held, call.connection)
