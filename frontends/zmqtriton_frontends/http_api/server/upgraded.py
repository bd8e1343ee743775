"""A connection that a responder has taken over: bytes in and out, at the pace of both sides."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from zmqtriton_frontends.http_api.server.channel import Channel

#: Unread bytes of the client from which on nothing more is received.
_MAX_HELD_BYTES = 64 << 10


class Upgraded(asyncio.Protocol):
    def __init__(self, connection: Any, channel: Channel) -> None:
        """Set up; the end of the socket is still the connection's matter."""
        self._channel = channel
        self._held = b""
        self._has_ended, self._is_closed = channel.is_half_closed, False
        #: Done when more has come, or nothing more comes.
        self._news: asyncio.Future[None] | None = None
        self._connection = connection
        self.rest = connection.rest

    def data_received(self, data: bytes) -> None:
        if self._is_closed:
            return
        self._held += data
        if len(self._held) > _MAX_HELD_BYTES:
            self._channel.pause_reading()
        self._tell()

    def eof_received(self) -> bool:
        self._has_ended = True
        self._tell()
        return not self._is_closed

    def connection_lost(self, error: BaseException | None) -> None:
        self.eof_received()
        self._connection.connection_lost(error)

    def pause_writing(self) -> None:
        self._channel.fill()

    def resume_writing(self) -> None:
        self._channel.empty()

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def read(self) -> bytes:
        """Return received bytes, or wait for the next ones; b"" at the end."""
        while not self._held and not self._has_ended:
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        data, self._held = self._held, b""
        self._channel.resume_reading()
        return data

    def close(self) -> None:
        """Close it once all bytes were sent; the client can read them, whatever it sends."""
        self._is_closed = True
        self._connection.close(is_amid_request=not self._has_ended)

    async def write(self, parts: Sequence[bytes | memoryview]) -> None:
        """Send bytes; wait until the client has read most of what it was sent."""
        self._channel.write_all(parts)
        while self._channel.unread is not None:
            # several may wait, and one that is cancelled must not end the wait of the others
            await asyncio.wait((self._channel.unread,))
