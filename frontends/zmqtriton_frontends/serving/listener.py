"""A bound socket that accepts connections of a process, except while it has no room for more.

Connections that are not accepted wait in the kernel's queue, where other processes of the server
may take them. The loop has no way to pause a socket: without a descriptor it accepts connections
only to close them. So the loop is given a duplicate, which is closed for the pause.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.process.handshakes import Handshakes, Make, TlsRefusal
from zmqtriton_frontends.process.room import Room

_log = logging.getLogger(__name__)

BACKLOG = 4096
#: Maximum number of connections that a process accepts in one turn of its loop.
_MAX_AT_ONCE = 32


class Listener:
    def __init__(
        self,
        make: Callable[[], asyncio.BaseProtocol],
        bound: socket.socket,
        has_much_room: Callable[[], bool] = lambda: True,
    ) -> None:
        """Set up; the listener closes the socket at its end."""
        self._make = make
        self._has_much_room = has_much_room
        self._bound = bound
        bound.setblocking(False)
        self._server: Any = None
        self._opening: asyncio.Future[None] | None = None
        self._is_paused = self._is_closed = False
        #: Number of connections to accept after the one that the loop accepts in each turn. It
        #: doubles while more of them wait, so that idle processes share a burst. Without much room
        #: none is accepted: they would make room for each other before they have sent a request.
        self._more = 1
        #: Tasks that give these connections their protocols.
        self._taking: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> Any:
        return self._bound.getsockname()

    async def open(self) -> None:
        """Accept connections. Raises OSError if it cannot listen."""
        # without a backlog the loop would have them listen for a hundred at a time
        self._server = await asyncio.get_running_loop().create_server(
            self._make_first, sock=self._bound.dup(), backlog=BACKLOG
        )
        if self._is_paused or self._is_closed:
            self._stop()

    def _make_first(self) -> asyncio.BaseProtocol:
        """Make the protocol of the connection that the loop has accepted, and look for more.

        The loop accepts one in each turn, so after a burst of connections a client would wait for
        as many turns.
        """
        asyncio.get_running_loop().call_soon(self._accept_more)
        return self._make()

    def _accept_more(self) -> None:
        if self._server is not None and self._has_much_room():
            self._taking = self._accept(self._more)
            are_more = len(self._taking) == self._more
            self._more = min(2 * self._more, _MAX_AT_ONCE) if are_more else 1

    def _accept(self, limit: float) -> set[asyncio.Task[None]]:
        """Accept at most this number of waiting connections; return the tasks that do it."""
        taking = set[asyncio.Task[None]]()
        with suppress(OSError):  # none is left, or another process of ours was faster
            while len(taking) < limit:
                connection, _ = self._bound.accept()
                taking.add(asyncio.ensure_future(self._take(connection)))
        return taking

    async def _take(self, connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._make, connection)
        except OSError:
            connection.close()

    def pause(self) -> None:
        """Accept nothing until `resume`."""
        self._is_paused = True
        self._stop()

    def resume(self) -> None:
        """Accept connections, unless it does so already; a failure is only logged."""
        self._is_paused = False
        if self._server is None and self._opening is None and not self._is_closed:
            self._opening = asyncio.ensure_future(self.open())
            self._opening.add_done_callback(self._end_opening)

    def _end_opening(self, opening: asyncio.Future[None]) -> None:
        self._opening = None
        if not opening.cancelled() and (error := opening.exception()) is not None:
            _log.warning("no connections can be accepted: %s", error)

    def check(self) -> None:
        """Listen again if another process with the socket has shut it down, and log that."""
        is_listening = self._bound.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if self._server is not None and not is_listening:
            _log.error("the listener at %s was shut down elsewhere; it listens again", self.address)
            self._stop()
            self.resume()

    def leave(self) -> None:
        """Accept no more connections; clients that connect wait for another server."""
        self._is_closed = True
        self._stop()

    async def end(self) -> None:
        """Accept clients that have connected; refuse others from now on, in all processes."""
        self.leave()
        await asyncio.gather(*self._accept(math.inf))
        with suppress(OSError):
            # if it were closed alone, the kernel would still accept for the other processes
            self._bound.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        self.leave()
        self._bound.close()

    def _stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()


class Listeners:
    """All listeners of a process, and the TLS handshakes of accepted connections."""

    def __init__(
        self,
        gateway: Gateway,
        room: Room[Any],
        service: str,
        protocol: str,
        refusal: Callable[[], TlsRefusal],
        *,
        passed: int,
    ) -> None:
        """Set up; the first `passed` sockets are shared with other servers.

        If the settings have a certificate, connections have TLS. ALPN offers `protocol`, and
        `refusal` answers clients without TLS. Raises OSError for files that cannot be used.
        """
        self._room = room
        self._gateway = gateway
        tls = gateway.settings.access.tls
        self._handshakes = None if tls is None else Handshakes(tls, service, protocol, refusal)
        self._passed = passed
        self.all: list[Listener] = []

    def add(self, make: Make, bound: socket.socket, *, is_secure: bool = True) -> None:
        """Add a socket, and the function that makes its connections; `end` closes it."""
        made: Callable[[], asyncio.BaseProtocol] = partial(make, None)
        if is_secure and self._handshakes is not None:
            made = self._handshakes.before(make)
        self.all.append(Listener(made, bound, lambda: self._room.has_much))

    async def open(self) -> None:
        """Accept connections. Raises RuntimeError if a socket cannot listen."""
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
        """If the server stops, leave shared sockets to the other servers that have them."""
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
