"""A bound socket, where a process accepts connections, except while it has no room for more.

What is not accepted waits in the kernel's queue, where other processes of the server may take it.
The loop has no way to leave a socket alone, and without a descriptor it accepts connections only to
close them; so it is given a duplicate, which is closed for the pause.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.process.handshakes import Handshakes, Make

_log = logging.getLogger(__name__)

BACKLOG = 4096


class Listener:
    def __init__(self, make: Callable[[], asyncio.BaseProtocol], bound: socket.socket) -> None:
        """Set up; the socket is closed with this."""
        self._make = make
        self._bound = bound
        self._server: Any = None
        self._opening: asyncio.Future[None] | None = None
        self._is_paused = self._is_closed = False

    @property
    def address(self) -> Any:
        return self._bound.getsockname()

    async def open(self) -> None:
        """Accept connections. Raises OSError if that is impossible."""
        # without a backlog the loop would have them listen for a hundred at a time
        self._server = await asyncio.get_running_loop().create_server(
            self._make, sock=self._bound.dup(), backlog=BACKLOG
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

    def check(self) -> None:
        """Listen again if another process that has the socket has shut it down, and log that."""
        is_listening = self._bound.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if self._server is not None and not is_listening:
            _log.error("the listener at %s was shut down elsewhere; it listens again", self.address)
            self._stop()
            self.resume()

    def leave(self) -> None:
        """Accept nothing any more; clients that connect wait for another server."""
        self._is_closed = True
        self._stop()

    async def end(self) -> None:
        """Accept clients that have connected, and refuse others from now on, in all processes."""
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
            # if it were closed alone, the kernel would still accept for the other processes
            listening.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        self.leave()
        self._bound.close()

    def _stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()


class Listeners:
    """All listeners of a process, with the handshakes of TLS before what they accept."""

    def __init__(
        self, gateway: Gateway, handshakes: Handshakes | None = None, *, passed: int = 0
    ) -> None:
        """Set up; the first `passed` sockets are not this server's alone."""
        self._gateway = gateway
        self._handshakes = handshakes
        self._passed = passed
        self.all: list[Listener] = []

    def add(self, make: Make, bound: socket.socket, *, is_secure: bool = True) -> None:
        """Add a socket, and the function that makes its connections; `end` closes it."""
        made: Callable[[], asyncio.BaseProtocol] = partial(make, None)
        if is_secure and self._handshakes is not None:
            made = self._handshakes.before(make)
        self.all.append(Listener(made, bound))

    async def open(self) -> None:
        """Accept connections. Raises RuntimeError if that is impossible."""
        for listener in self.all:
            try:
                await listener.open()
            except OSError as error:
                raise RuntimeError(f"cannot listen on {listener.address}: {error}") from error

    def check(self) -> None:
        """Do the work of each second."""
        if not self._gateway.is_stopping:
            for listener in self.all:
                listener.check()
        if self._handshakes is not None:
            self._handshakes.renew()

    def _of_others(self) -> int:
        return len(self.all) if self._gateway.has_successor else self._passed

    def leave(self) -> None:
        """Leave sockets to the other servers that have them, when this one stops."""
        if self._gateway.is_stopping:
            for listener in self.all[: self._of_others()]:
                listener.leave()

    async def end(self) -> None:
        """Accept nothing more; if the server ends, clients that connect are refused."""
        if self._gateway.is_ending:
            for listener in self.all[self._of_others() :]:
                await listener.end()
        for listener in self.all:
            listener.close()

    def close(self) -> None:
        if self._handshakes is not None:
            self._handshakes.close()


def address(host: str, port: int) -> str:
    """Return the address in its usual notation."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def address_of(bound: socket.socket) -> str:
    return address(*bound.getsockname()[:2])
