"""gRPC over our own HTTP/2: one listening port, its connections, and how they end.

grpcio's server has the same handlers.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Sequence
from functools import partial

from zmqtriton_floor.errors import Unavailable
from zmqtriton_frontends.access import refusals
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.grpc_api.transport import account, call_headers
from zmqtriton_frontends.grpc_api.transport.connection import ClientConnection
from zmqtriton_frontends.grpc_api.transport.lifecycle import (
    MAX_STREAMS,
    SERVICE,
    RpcLifecycle,
    compression_of,
)
from zmqtriton_frontends.grpc_api.transport.stream_call import RefusedRpc
from zmqtriton_frontends.http2.budget import PingRules
from zmqtriton_frontends.http2.connection import Begin, Http2Connection, Rules
from zmqtriton_frontends.http2.header_blocks import Headers
from zmqtriton_frontends.process.room import Room, max_connections
from zmqtriton_frontends.process.turns import Turns
from zmqtriton_frontends.serving.listener import Listeners, address
from zmqtriton_frontends.serving.process import Counts, Service

_TOLD = call_headers.refusal_of(
    # as its client would report a connection that ends
    Unavailable.grpc_status,
    "this port speaks TLS: use a secure channel (with tritonclient: ssl=True)",
)
#: Refusals on one connection; what comes beyond them is reset, or not read. The client gets no
#: GOAWAY before: gRPC's own could lose a large call that it begins as it reads that, and cannot
#: repeat.
_MAX_ANSWERS = 100
#: Bytes that are read before the end of the answers is noticed.
_STEP_BYTES = 4096


class PlainCalls:
    """The refusal of the calls on one connection.

    As little HTTP/2 as a refusal takes: calls are answered when they begin, and their data are
    dropped. Does no I/O.
    """

    def __init__(self) -> None:
        self._http2 = Http2Connection(self._read, lambda: None, Rules())
        self._answers = 0

    @property
    def is_complete(self) -> bool:
        return self._http2.is_done

    def answer(self, data: bytes, /) -> bytes:
        left = memoryview(data)
        while left and not self.is_complete:
            self._http2.receive(left[:_STEP_BYTES])
            left = left[_STEP_BYTES:]
        return b"".join(self._http2.take_output())

    def _read(self, headers: Headers) -> Begin:
        return partial(self._refuse, call_headers.read_opening(headers, {}, of_unknown=_TOLD))

    def _refuse(
        self, opening: call_headers.RpcHeaders, connection: Http2Connection, number: int
    ) -> RefusedRpc:
        self._answers += 1
        if self._answers == _MAX_ANSWERS:
            connection.leave()
            connection.refuse_streams()
        return RefusedRpc(opening, connection, number)


#: Bytes that are received at once. One buffer is enough, since its content is used at once, too.
_BUFFER_BYTES = 1 << 18
_MAX_CONNECTIONS = 10_000


class NativeServer(Service):
    """One listening port. Its RPCs end with a status even if a handler fails."""

    role = "grpc"

    def __init__(self, gateway: Gateway, bound: Sequence[socket.socket]) -> None:
        """Set up with sockets to listen on, one of each family.

        Other processes of the server share the sockets; the supervisor keeps them open while no
        process serves.
        """
        settings = gateway.settings
        self.answering = RpcLifecycle(gateway)
        self.ledger, self.tokens = self.answering.ledger, self.answering.tokens
        self.compression = compression_of(settings.grpc)
        self.settings = grpc = settings.grpc
        #: The rules for clients' HTTP/2 connections.
        self.rules = Rules(
            MAX_STREAMS,
            PingRules(
                interval_s=grpc.http2_min_recv_ping_interval_without_data / 1000,
                strikes=grpc.http2_max_ping_strikes,
                without_calls=grpc.keepalive_permit_without_calls,
            ),
        )
        self.buffer = memoryview(bytearray(_BUFFER_BYTES))
        self.turns = Turns(asyncio.get_running_loop().call_soon)
        self._rpcs = {f"/{rpc.service}/{rpc.method}".encode(): rpc for rpc in self.answering.table}
        limit = min(_MAX_CONNECTIONS, max_connections())
        self.room: Room[ClientConnection] = Room(limit, time.monotonic, looks_always=True)
        is_passed = "grpc" in settings.server.passed_sockets
        self.shares_port = is_passed or settings.grpc.reuse_port
        self._listeners = Listeners(
            gateway, self.room, "grpc", "h2", PlainCalls, passed=len(bound) * is_passed
        )
        for each in bound:
            self._listeners.add(lambda _: ClientConnection(self), each)
        self._address = address(settings.grpc.address, settings.grpc.port)

    async def open(self) -> list[tuple[str, str]]:
        await self._listeners.open()
        return [(SERVICE, self._address)]

    def counts(self) -> Counts:
        return {
            "connections": {"": self.room.added},
            "calls": account.counts(),
            "access_refusals": refusals.counts,
        }

    def check(self) -> None:
        self.room.check()
        self._listeners.check()

    def leave(self, is_leaving: bool) -> None:
        """Send each client a GOAWAY once its sequences have ended."""
        if is_leaving:
            self._listeners.leave()
            for connection in self.room:
                connection.leave(after_sequences=True)

    async def end(self, within_s: float) -> None:
        """Send clients a GOAWAY; calls that they begin before they have read it are answered."""
        await self._listeners.end()
        for connection in self.room:
            connection.leave()
        self.answering.drain()

    def end_idle(self) -> bool:
        return not len(self.room)

    async def close(self) -> None:
        for connection in self.room:
            connection.abort()  # which cancels what was in flight
        await asyncio.sleep(0)  # cancelled tasks end meanwhile
        self._listeners.close()

    # --------------------------------------------------------- for connections

    def admit(self, connection: ClientConnection) -> bool:
        """Return whether there is room for one more connection."""
        if self.room.is_full:
            still = self.room.take_still()
            if not still:
                return False
            for other in still:
                other.end(b"too_many_connections")
        self.room.add(connection)
        return True

    def read_opening(self, headers: Headers) -> call_headers.RpcHeaders:
        return call_headers.read_opening(headers, self._rpcs)
