"""Receives for a connection that has large bodies: from the socket straight to their place.

It takes the place of the connection's own side towards the loop from the first large body on, which
would be copied there.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

#: Enough for the head of a request, and not much of a large body behind it.
_HEAD_BYTES = 16 << 10
#: Smaller rests of a body are not received into their own place.
_WORTH_BYTES = 16 << 10
# One for all connections: what is received into it is taken out in the same turn of the loop.
_buffer = memoryview(bytearray(256 << 10))
_head_buffer = _buffer[:_HEAD_BYTES]


class Receiver(Protocol):
    """The connection."""

    def room(self) -> memoryview | None:
        """Return where the next bytes of a body may be received; empty if nowhere.

        None if what comes is no part of a body.
        """

    def filled(self, size: int) -> None:
        """Note that bytes were received there."""

    def data_received(self, data: bytes, /) -> None:
        """Take bytes received elsewhere."""

    def eof_received(self) -> bool | None:
        """Take note that nothing more comes."""

    def connection_lost(self, error: Exception | None, /) -> None:
        """Take note that the connection is closed."""

    def pause_writing(self) -> None:
        """Take note that the client does not read."""

    def resume_writing(self) -> None:
        """Take note that the client reads again."""


class BodyReceiver(asyncio.BufferedProtocol):
    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._is_filling = False

    def get_buffer(self, sizehint: int) -> memoryview:
        room = self._receiver.room()
        self._is_filling = room is not None and len(room) >= _WORTH_BYTES
        if room is None:
            return _head_buffer
        return room if self._is_filling else _buffer

    def buffer_updated(self, size: int) -> None:
        if self._is_filling:
            self._receiver.filled(size)
        else:
            self._receiver.data_received(bytes(_buffer[:size]))

    # ------------------------------------------------- the connection hears everything else

    def eof_received(self) -> bool | None:
        return self._receiver.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._receiver.connection_lost(error)

    def pause_writing(self) -> None:
        self._receiver.pause_writing()

    def resume_writing(self) -> None:
        self._receiver.resume_writing()
