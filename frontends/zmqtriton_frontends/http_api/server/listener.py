"""A bound socket on which a process accepts connections, except while it has no room for more.

What is not accepted waits in the kernel's queue, where other processes of the server may take it.
The loop cannot be told to leave a socket alone, and without a descriptor it accepts connections
only to close them; so it is given a duplicate, which is closed for the pause.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_log = logging.getLogger(__name__)


class Listener:
    def __init__(
        self, make: Callable[[], asyncio.BaseProtocol], bound: socket.socket, backlog: int
    ) -> None:
        """Set up; the socket is closed with this."""
        self._make = make
        self._bound = bound
        self._backlog = backlog
        self._server: Any = None
        self._opening: asyncio.Future[None] | None = None
        self._is_paused = self._is_closed = False

    async def open(self) -> None:
        """Accept connections. Raises OSError if that is impossible."""
        # without a backlog the loop would have them listen for a hundred at a time
        self._server = await asyncio.get_running_loop().create_server(
            self._make, sock=self._bound.dup(), backlog=self._backlog
        )
        if self._is_paused or self._is_closed:
            self._stop()

    def pause(self) -> None:
        """Accept nothing until `resume`."""
        self._is_paused = True
        self._stop()

    def resume(self) -> None:
        """Accept connections, if that is not done already; fails with a line in the log."""
        self._is_paused = False
        if self._server is None and self._opening is None and not self._is_closed:
            self._opening = asyncio.ensure_future(self.open())
            self._opening.add_done_callback(self._end_opening)

    def _end_opening(self, opening: asyncio.Future[None]) -> None:
        self._opening = None
        if not opening.cancelled() and (error := opening.exception()) is not None:
            _log.warning("no connections can be accepted: %s", error)

    def leave(self) -> None:
        """Accept nothing any more; clients that connect wait for another server."""
        self._is_closed = True
        self._stop()

    async def end(self) -> None:
        """Accept those who have connected, and refuse others from now on, in all processes."""
        self.leave()
        loop, listening = asyncio.get_running_loop(), self._bound
        listening.setblocking(False)
        with suppress(OSError):  # none is left, or another process of ours was faster
            while True:
                connection, _ = listening.accept()
                try:
                    await loop.connect_accepted_socket(self._make, connection)
                except OSError:
                    connection.close()
        with suppress(OSError):
            # closed it would still be the arbiter's, for which the kernel accepts, too
            listening.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        self.leave()
        self._bound.close()

    def _stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
