"""gRPC over our own HTTP/2: one listening port, its connections, and how they end.

Used in place of grpcio_server.py if the settings ask for it. The handlers are the same.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from zmqtriton_floor.settings.frontends import Grpc
from zmqtriton_frontends.access import refusals
from zmqtriton_frontends.gateway.client_report import ClientReport
from zmqtriton_frontends.gateway.gateway import Gateway, is_followed
from zmqtriton_frontends.grpc_api.transport import call_counts, call_headers
from zmqtriton_frontends.grpc_api.transport.connection import ClientConnection, Times
from zmqtriton_frontends.grpc_api.transport.lifecycle import (
    LINGER_S,
    MAX_STREAMS,
    RpcLifecycle,
    compression_of,
)
from zmqtriton_frontends.grpc_api.transport.plain_calls import PlainCalls
from zmqtriton_frontends.http2.budget import PingRules
from zmqtriton_frontends.http2.connection import Rules
from zmqtriton_frontends.http2.header_blocks import Headers
from zmqtriton_frontends.process.descriptors import max_connections
from zmqtriton_frontends.process.handshakes import handshakes_of
from zmqtriton_frontends.process.room import Room
from zmqtriton_frontends.process.turns import Turns

#: What is received at once. One buffer is enough, since its content is used at once, too.
_BUFFER_BYTES = 1 << 18
_BACKLOG = 4096
_MAX_CONNECTIONS = 10_000
_CHECK_EVERY_S = 1.0

_log = logging.getLogger(__name__)


class NativeServer:
    """One listening port. Its RPCs end with a status, whatever a handler does."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        settings = gateway.settings
        self.answering = RpcLifecycle(gateway)
        self.compression = compression_of(settings.grpc)
        self.rules, self.times = rules_of(settings.grpc), times_of(settings.grpc)
        self.buffer = memoryview(bytearray(_BUFFER_BYTES))
        self.turns = Turns(asyncio.get_running_loop().call_soon)
        self._rpcs = {f"/{rpc.service}/{rpc.method}".encode(): rpc for rpc in self.answering.table}
        limit = min(_MAX_CONNECTIONS, max_connections())
        self._connections: Room[ClientConnection] = Room(limit, time.monotonic, looks_always=True)
        self._handshakes = handshakes_of(settings.access.tls, "grpc", "h2", PlainCalls)
        self._make: Callable[[], asyncio.BaseProtocol] = partial(ClientConnection, self)
        if self._handshakes is not None:
            self._make = self._handshakes.before(lambda _: ClientConnection(self))
        self._bound: Sequence[socket.socket] = ()
        self._is_passed = "grpc" in settings.server.passed_sockets
        self._listening: list[asyncio.AbstractServer] = []
        self._checking: asyncio.TimerHandle
        self._report = ClientReport(
            gateway.call,
            "grpc",
            self.answering.ledger,
            connections=lambda: len(self._connections),
            counts=lambda: {
                "connections": {"": self._connections.added},
                "calls": call_counts.counts(),
                "access_refusals": refusals.counts,
            },
        )
        #: Set when the last connection is closed.
        self._is_left: asyncio.Event | None = None

    async def start(self, bound: Sequence[socket.socket]) -> None:
        """Listen on bound sockets. Raises RuntimeError if that is impossible.

        Other processes of the server share them; the supervisor keeps them while none serves.
        """
        self._bound = bound
        loop = asyncio.get_running_loop()
        try:
            for each in bound:
                listening = each.dup()  # the loop closes it
                server = await loop.create_server(self._make, sock=listening, backlog=_BACKLOG)
                self._listening.append(server)
        except OSError as error:
            raise RuntimeError(f"cannot listen on {each.getsockname()}: {error}") from error
        self._check()

    def _check(self) -> None:
        self._report.check()
        self._connections.check()
        if self._handshakes is not None:
            self._handshakes.renew()
        self._checking = asyncio.get_running_loop().call_later(_CHECK_EVERY_S, self._check)

    @property
    def _is_port_of_others(self) -> bool:
        """True if somebody else lets clients connect to it when this server has left."""
        return self._is_passed or self._gateway.has_successor

    def _leave_port(self) -> None:
        """Accept nothing more; clients that connect wait for another server."""
        for server in self._listening:
            server.close()
        self._listening.clear()
        for bound in self._bound:
            bound.close()
        self._bound = ()

    async def _end_listening(self) -> None:
        """Accept those who have connected, and refuse others from now on, in all processes."""
        for server in self._listening:
            server.close()
        for bound in self._bound:
            bound.setblocking(False)
            with suppress(OSError):  # none is left, or another process of ours was faster
                while True:
                    connection, _ = bound.accept()
                    await self._take(connection)
            with suppress(OSError):
                # closed it would still be the supervisor's, for which the kernel accepts, too
                bound.shutdown(socket.SHUT_RD)
        self._leave_port()

    async def _take(self, connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._make, connection)
        except OSError:
            connection.close()

    def leave(self) -> None:
        """Tell clients to go elsewhere, each when it has ended its sequences.

        If the server stops, those who connect to a socket of others are the next one's.
        """
        if self._is_port_of_others and self._gateway.is_stopping:
            self._leave_port()
        for connection in self._connections:
            connection.leave(after_sequences=True)

    async def stop(self, within_s: float) -> None:
        """Return when every RPC has ended, or the time is up and the rest is aborted.

        Clients are told to go; what they ask before they have read that is answered.
        """
        self._checking.cancel()
        if self._is_port_of_others:
            self._leave_port()
        else:
            await self._end_listening()
        self._is_left = asyncio.Event()
        for connection in self._connections:
            connection.leave()
        self.answering.drain()
        try:
            if len(self._connections):
                await asyncio.wait_for(self._is_left.wait(), within_s)
        except asyncio.TimeoutError:
            _log.warning("%d RPCs were not answered in time", self.answering.active)
            for connection in self._connections:
                connection.abort()
            # which cancels what was in flight
            await self._is_left.wait()
        await self.answering.rest(LINGER_S)
        if self._handshakes is not None:
            self._handshakes.close()

    # --------------------------------------------------------- for connections

    @property
    def is_followed(self) -> bool:
        return is_followed(self._gateway)

    def admit(self, connection: ClientConnection) -> bool:
        """Return whether there is room for one more."""
        if self._connections.is_full:
            still = self._connections.take_still()
            if not still:
                return False
            for other in still:
                other.end(b"too_many_connections")
        self._connections.add(connection)
        return True

    def left(self, connection: ClientConnection) -> None:
        self._connections.remove(connection)
        if not len(self._connections) and self._is_left is not None:
            self._is_left.set()

    def read_opening(self, headers: Headers) -> call_headers.Opening | None:
        return call_headers.read_opening(headers, self._rpcs)


def rules_of(settings: Grpc) -> Rules:
    """Return the rules for clients."""
    pings = PingRules(
        interval_s=settings.http2_min_recv_ping_interval_without_data / 1000,
        strikes=settings.http2_max_ping_strikes,
        without_calls=settings.keepalive_permit_without_calls,
    )
    return Rules(MAX_STREAMS, pings)


def times_of(settings: Grpc) -> Times:
    return Times(
        keepalive_s=settings.keepalive_time / 1000,
        keepalive_timeout_s=settings.keepalive_timeout / 1000,
        without_calls=settings.keepalive_permit_without_calls,
        pings=settings.http2_max_pings_without_data,
        age_s=settings.max_connection_age / 1000,
        grace_s=settings.max_connection_age_grace / 1000,
    )
