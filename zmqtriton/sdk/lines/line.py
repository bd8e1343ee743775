"""The way from a frontend to the process of an add-on, which no request waits for.

Small records go together after a moment: one by one, each would wake that process beside a request
that is answered. Bytes that the socket does not take wait, up to a limit; records beyond it are
dropped and counted.
"""

from __future__ import annotations

import asyncio
import atexit
import socket
import time
from collections.abc import Callable
from contextlib import suppress

#: The limit of bytes that wait for a process that does not keep up.
MAX_BYTES = 32 << 20
_AGAIN_AFTER_S = 1.0
#: Bytes of records that are sent at once, and the time that fewer wait for more.
_TOGETHER_BYTES = 64 << 10
_TOGETHER_S = 0.05
#: Maximum time for sending what is left when the frontend ends.
_END_WITHIN_S = 1.0


class Line:
    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._left = bytearray()
        #: Calls for data in `_left`, if the connection ends before the socket has taken all.
        self._on_loss: list[Callable[[], None]] = []
        #: True while bytes wait until the socket takes more.
        self._is_blocked = False
        self._timer: asyncio.TimerHandle | None = None
        self._next_try_s = 0.0
        #: The number of the connection; 0 before the first.
        self.connection = 0
        #: Number of records that had no room and were not reported yet; the senders count them.
        self.dropped = 0

    def has_room(self, size: int) -> bool:
        """Return whether this many bytes may be sent; connect if that is due."""
        if self._socket is None:
            self._connect()
        return self._socket is not None and len(self._left) + size <= MAX_BYTES

    def send(self, data: bytes, lost: Callable[[], None] | None = None) -> None:
        """Send data soon; if they are lost with the connection, call `lost`."""
        if self._socket is None:
            if lost is not None:
                lost()
            return
        self._left += data
        if lost is not None:
            self._on_loss.append(lost)
        if self._is_blocked or self._loop is None or self._loop.is_closed():
            return  # without a loop this process ends, and close() sends what is left
        if len(self._left) >= _TOGETHER_BYTES:
            self._flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(_TOGETHER_S, self._flush)

    def soon(self, act: Callable[[], object]) -> None:
        """Call `act` in the next turn of the loop, once the answers of this turn have gone."""
        if self._loop is not None:
            self._loop.call_soon(act)

    def close(self) -> None:
        """Send the rest, and close the connection."""
        if self._socket is not None and self._left:
            self._socket.settimeout(_END_WITHIN_S)
            with suppress(OSError):
                self._socket.sendall(self._left)
        self._drop_connection()

    def _drop_connection(self) -> None:
        connection, self._socket = self._socket, None
        self._left.clear()
        on_loss, self._on_loss = self._on_loss, []
        for lost in on_loss:
            lost()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if connection is not None:
            if self._is_blocked and self._loop is not None and not self._loop.is_closed():
                self._loop.remove_writer(connection)
            self._is_blocked = False
            connection.close()

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
        self._socket, self._loop = connection, asyncio._get_running_loop()
        self.connection += 1
        if self.connection == 1:
            atexit.register(self.close)

    def _flush(self) -> None:
        """Send as many bytes as the socket takes at once."""
        connection, loop = self._socket, self._loop
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if connection is None or loop is None:
            return
        try:
            with suppress(BlockingIOError, InterruptedError):
                del self._left[: connection.send(self._left)]
        except OSError:
            self._drop_connection()
            return
        if not self._left:
            self._on_loss.clear()
        if bool(self._left) != self._is_blocked:
            self._is_blocked = bool(self._left)
            if self._is_blocked:
                loop.add_writer(connection, self._flush)
            else:
                loop.remove_writer(connection)
