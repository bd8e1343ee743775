"""The messages of one stream still to be written: a queue whose senders wait while it is full.

Every request of a stream sends into it, and the transport writes one message at a time out of it.
So a client that does not read stops its own requests and nobody else's.
"""

from __future__ import annotations

import asyncio
from collections import deque

#: The limit; more would only lie here, since the transport has a buffer of its own.
_MAX_MESSAGES = 64
_MAX_BYTES = 4 << 20


class Outbox:
    """An async iterator of messages, which ends when it is told to and all are taken."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        #: Messages that do not fit yet, and what their senders wait for.
        self._waiting: deque[tuple[bytes, asyncio.Future[None]]] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._has_ended = False
        self._error: Exception | None = None

    async def send(self, message: bytes) -> None:
        """Return when the message has its place, or at once if nothing is written any more."""
        admitted = self.offer(message)
        if admitted is not None:
            await admitted

    def offer(self, message: bytes) -> asyncio.Future[None] | None:
        """Likewise without waiting.

        A future that is done when the message has its place, or None.
        """
        if self._has_ended:
            return None
        # nobody overtakes a waiting message, so that a quick sender cannot keep all others out
        if not self._waiting and not self._is_full:
            self._put(message)
            return None
        admitted = self._loop.create_future()
        self._waiting.append((message, admitted))
        return admitted

    def end(self, error: Exception | None = None) -> None:
        """End: what is here is still written, then the error is raised.

        A second end changes nothing.
        """
        if self._has_ended:
            return
        self._has_ended = True
        self._error = error
        while self._waiting:
            _, admitted = self._waiting.popleft()
            if not admitted.done():
                admitted.set_result(None)
        self._wake_reader()

    def __aiter__(self) -> Outbox:
        return self

    async def __anext__(self) -> bytes:
        while not self._messages:
            if self._has_ended:
                raise self._error or StopAsyncIteration
            self._reader = self._loop.create_future()
            await self._reader
        message = self._messages.popleft()
        self._bytes -= len(message)
        while self._waiting and not self._is_full:
            next_message, admitted = self._waiting.popleft()
            if not admitted.done():
                self._put(next_message)
                admitted.set_result(None)
        return message

    @property
    def _is_full(self) -> bool:
        return len(self._messages) >= _MAX_MESSAGES or self._bytes >= _MAX_BYTES

    def _put(self, message: bytes) -> None:
        self._messages.append(message)
        self._bytes += len(message)
        self._wake_reader()

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
