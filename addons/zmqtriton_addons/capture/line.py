"""The way from a frontend to the process of captures, which no request waits for.

Bytes that the socket does not take at once wait, up to a limit; captures beyond it are dropped
and counted.
"""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import suppress

#: The limit of bytes that wait for a process that does not keep up.
MAX_BYTES = 32 << 20
_AGAIN_AFTER_S = 1.0


class Line:
    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._left = bytearray()
        self._next_try_s = 0.0
        #: The number of the connection; 0 before the first.
        self.connection = 0
        #: Lines that had no room, and are not told yet; counted by those who send.
        self.dropped = 0

    def has_room(self, size: int) -> bool:
        """Return whether this many bytes may be sent; connect if that is due."""
        if self._socket is None:
            self._connect()
        return self._socket is not None and len(self._left) + size <= MAX_BYTES

    def send(self, data: bytes) -> None:
        """Send, or keep the rest for later; does nothing without a connection."""
        if self._socket is None or self._loop is None:
            return
        if self._left:
            self._left += data
            return
        sent = self._try(data)
        if sent < len(data) and self._socket is not None:
            self._left += memoryview(data)[sent:]
            self._loop.add_writer(self._socket, self._flush)

    def close(self) -> None:
        connection, self._socket = self._socket, None
        if connection is not None:
            if self._left and self._loop is not None and not self._loop.is_closed():
                self._loop.remove_writer(connection)
            connection.close()
        self._left.clear()

    def __del__(self) -> None:
        self.close()

    def _connect(self) -> None:
        if time.monotonic() < self._next_try_s:
            return
        self._next_try_s = time.monotonic() + _AGAIN_AFTER_S
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            connection.connect(self._path)
        except OSError:
            connection.close()  # it is being replaced, or not there yet
            return
        self._socket, self._loop = connection, asyncio.get_running_loop()
        self.connection += 1

    def _try(self, data: bytes | bytearray) -> int:
        """Send as many bytes as the socket takes at once; return how many."""
        connection = self._socket
        if connection is None:
            return 0
        with suppress(BlockingIOError, InterruptedError):
            try:
                return connection.send(data)
            except (BlockingIOError, InterruptedError):
                raise
            except OSError:
                self.close()
        return 0

    def _flush(self) -> None:
        sent = self._try(self._left)
        del self._left[:sent]
        if not self._left and self._socket is not None and self._loop is not None:
            self._loop.remove_writer(self._socket)
