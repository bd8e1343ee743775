"""The messages of one stream that wait to be written; senders wait while the queue is full.

Every request of a stream sends into the queue, and the transport writes one message at a time from
it. So a client that does not read stops its own requests, and none of other clients. Messages that
wait here, or are encoded and wait for their turn, have room in the ledger.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from zmqtriton_frontends.grpc_api.call import NoRoomError
from zmqtriton_frontends.grpc_api.inference.response import Pieces
from zmqtriton_frontends.process.arrivals import Arrivals
from zmqtriton_frontends.process.futures import wake
from zmqtriton_frontends.process.ledger import Share

Message = bytes | Pieces

#: Limits of the queue; more would only lie here, since the transport has a buffer of its own.
_MAX_MESSAGES = 64
_MAX_BYTES = 4 << 20
#: Bytes of a stream's messages that are not booked: they are part of what an open stream costs.
_FREE_BYTES = 4 << 10
#: Bytes of room that are taken in one step.
_STEP_BYTES = 32 << 10


class StreamOutbox:
    """An async iterator of messages; after end() it ends when all are taken."""

    def __init__(self, share: Share, on_taken: Callable[[], None] = lambda: None) -> None:
        """Set up; `on_taken` is called after a message was written and its room released."""
        self._loop = asyncio.get_running_loop()
        self._share = share
        self._on_taken = on_taken
        self._messages: deque[Message] = deque()
        self._bytes = 0
        #: Bytes of messages that are encoded and not taken, here or not yet; and bytes that there
        #: is room for.
        self.held = 0
        self.room = _FREE_BYTES
        #: Messages that do not fit yet, and what their senders wait for.
        self._waiting: deque[tuple[Message, asyncio.Future[None]]] = deque()
        #: Lock of the senders that wait for room before they encode: one after the other gets it.
        self._asking = asyncio.Lock()
        self._reader: asyncio.Future[None] | None = None
        self._has_ended = False
        self._error: Exception | None = None

    # ------------------------------------------------------------------ room

    def admits(self, size: int) -> bool:
        """Reserve room for a message that is about to be encoded; False without room."""
        more = self.held + size - self.room
        if more <= 0:
            return True
        if not self._share.take(-(-more // _STEP_BYTES) * _STEP_BYTES):
            return False
        self.room = _FREE_BYTES + self._share.held
        return True

    def book(self, message: Message) -> bool:
        """Reserve room for an encoded message that waits for its turn; False without room."""
        size = len(message)
        if self.held + size > self.room and not self.admits(size):
            return False
        self.held += size
        return True

    async def wait_for_room(self, size: int, arrivals: Arrivals | None = None) -> None:
        """Wait until the queue is not full, then reserve room.

        With `arrivals` an arrived response's room is used. Raises NoRoomError if there is no room
        for long.
        """
        async with self._asking:
            while (self._is_full or self._waiting) and not self._has_ended:
                admitted = self._loop.create_future()
                self._waiting.append((b"", admitted))
                await admitted
            if self._has_ended:
                return
            if arrivals is not None and arrivals.pass_on():
                more = max(0, self.held + size - self.room)
                self._share.add(-(-more // _STEP_BYTES) * _STEP_BYTES)
                self.room = _FREE_BYTES + self._share.held
                return
            if self.admits(size):
                return
            if not await self._share.wait(self.held + size - self.room):
                raise NoRoomError
            self.room = _FREE_BYTES + self._share.held

    def _give_room_back(self) -> None:
        self._share.hold(-(-max(0, self.held - _FREE_BYTES) // _STEP_BYTES) * _STEP_BYTES)
        self.room = _FREE_BYTES + self._share.held
        self._on_taken()

    def close(self) -> None:
        """Drop all messages: the client reads no more."""
        self.end()
        self._messages.clear()
        self._share.release()

    # -------------------------------------------------------------- messages

    async def send(self, message: Message, *, needs_room: bool = True) -> None:
        """Wait until the queue accepts the message; return at once if nothing is written any more.

        Raises NoRoomError if there is no room for long for a message that needs it.
        """
        size = len(message)
        if needs_room and self.held + size > self.room:
            await self.wait_for_room(size)
        self.held += size
        admitted = self.offer(message)
        if admitted is not None:
            await admitted

    def offer(self, message: Message) -> asyncio.Future[None] | None:
        """Put a message with room into the queue.

        Returns a future that is done when the queue has accepted it; None if that is so now.
        """
        if self._has_ended:
            self.held -= len(message)
            return None
        # no message overtakes a waiting one, so that a quick sender cannot keep all others out
        if not self._waiting and not self._is_full:
            self._put(message)
            return None
        admitted = self._loop.create_future()
        self._waiting.append((message, admitted))
        return admitted

    def end(self, error: Exception | None = None) -> None:
        """End: write the queued messages, then raise the error.

        A second end changes nothing.
        """
        if self._has_ended:
            return
        self._has_ended = True
        self._error = error
        while self._waiting:
            message, admitted = self._waiting.popleft()
            self.held -= len(message)
            wake(admitted)
        wake(self._reader)

    def __aiter__(self) -> StreamOutbox:
        return self

    async def __anext__(self) -> Message:
        while not self._messages:
            if self._has_ended:
                raise self._error or StopAsyncIteration
            self._reader = self._loop.create_future()
            await self._reader
        message = self._messages.popleft()
        self._bytes -= len(message)
        self.held -= len(message)
        if self.room > _FREE_BYTES:
            self._give_room_back()
        while self._waiting and not self._is_full:
            next_message, admitted = self._waiting.popleft()
            if not admitted.done():
                if next_message:
                    self._put(next_message)
                admitted.set_result(None)
            else:
                self.held -= len(next_message)
        return message

    @property
    def _is_full(self) -> bool:
        return len(self._messages) >= _MAX_MESSAGES or self._bytes >= _MAX_BYTES

    def _put(self, message: Message) -> None:
        self._messages.append(message)
        self._bytes += len(message)
        wake(self._reader)
