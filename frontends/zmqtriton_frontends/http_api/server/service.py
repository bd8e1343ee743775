"""The service of a process of HTTP: the connections of endpoints with a socket each."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from zmqtriton_floor.lazy_names import load_reference
from zmqtriton_frontends.access import refusals
from zmqtriton_frontends.gateway.gateway import Gateway, is_followed
from zmqtriton_frontends.http_api import app
from zmqtriton_frontends.http_api.asgi.access import AccessRules, Route
from zmqtriton_frontends.http_api.extension import EndpointParts
from zmqtriton_frontends.http_api.server.channel import by_status
from zmqtriton_frontends.http_api.server.connection import HttpConnection
from zmqtriton_frontends.http_api.server.inference_heads import InferenceHeads
from zmqtriton_frontends.process.ledger import Application, Ledger
from zmqtriton_frontends.process.room import Room, max_connections
from zmqtriton_frontends.process.turns import Turns
from zmqtriton_frontends.serving.listener import Listener, Listeners, address_of
from zmqtriton_frontends.serving.process import Counts, Service

_log = logging.getLogger(__name__)
MAIN = "socket"


def all_endpoints(
    names: Collection[str], gateway: Gateway, application: Application, access: AccessRules
) -> dict[str, Application]:
    """Return the application of each endpoint; the others pass requests on to the main one's."""
    parts = EndpointParts(gateway, application, access, partial(app.build, gateway, access=access))
    ports = (port for port in gateway.settings.ports if port.name in names)
    return {MAIN: application, **{port.name: load_reference(port.serve)(parts) for port in ports}}


class Connections:
    """The open connections of one process, and their common parts.

    There are at most as many as descriptors suffice for. Connections whose clients make no progress
    are closed for new ones; while all clients make progress, no connection is accepted, and new
    clients wait.
    """

    def __init__(
        self,
        application: Application,
        inferences: InferenceHeads | None,
        ledger: Ledger,
        now: Callable[[], float],
    ) -> None:
        self._application = application
        self._inferences = inferences
        self.ledger = ledger
        self.turns = Turns(asyncio.get_running_loop().call_soon)
        self.now = now
        self.is_leaving = self.is_ending = False
        self.room: Room[HttpConnection] = Room(max_connections(), now)
        #: Listeners that make the connections, paused while there is no room for more.
        self.listeners: list[Listener] = []
        self._is_full = False

    def make(self, below: Any = None) -> HttpConnection:
        """Make a connection for the loop; with `below` its transport encrypts for another."""
        return HttpConnection(self, self._application, self._inferences, below)

    def add(self, connection: HttpConnection) -> None:
        if self.room.is_full and not self._make_room():
            self._is_full = True
            for listener in self.listeners:
                listener.pause()
        self.room.add(connection)

    def _make_room(self) -> bool:
        """Close connections whose clients make no progress; False if all make progress."""
        still = self.room.take_still()
        for connection in still:
            if connection.is_idle:
                connection.close()
            else:
                connection.channel.abort()
        return bool(still)

    def remove(self, connection: HttpConnection) -> None:
        self.room.remove(connection)
        if self._is_full and not self.room.is_full:
            self._is_full = False
            for listener in self.listeners:
                listener.resume()

    def check(self) -> None:
        """Check all connections; called once a second."""
        now = self.now()
        for connection in self.room:
            try:
                connection.check(now)
            except Exception:  # noqa: BLE001 - an edge: a defect ends one connection, not all
                _log.exception("a connection could not be checked, and is closed")
                connection.channel.abort()
        self.room.check()
        if self._is_full:
            self._make_room()  # of those that have become idle, or do not go on
        else:
            for listener in self.listeners:
                listener.resume()  # if the last attempt failed

    def end(self, *, is_followed: bool) -> None:
        """Let the next response on each connection be its last, even amid open sequences.

        Sequences end here even if another server follows, as it does not know them.
        """
        self.is_leaving, self.is_ending = True, not is_followed
        for connection in self.room:
            connection.client.sequences.clear()

    def end_still(self, still_s: float) -> None:
        """End the connections that have been idle for this time."""
        now = self.now()
        for connection in self.room:
            connection.end_if_still(now, still_s)

    def close(self) -> None:
        for connection in self.room:
            connection.close()


#: Makes the application of a table of routes.
Build = Callable[[Gateway, list[Route], AccessRules], Any]

#: Seconds without a request after which a connection is closed at the end: a client that asks more
#: often learns of the end by an answer.
_STILL_S = 1.0
_TOLD = b'{"error":"this port speaks TLS: use https://"}'
_ANSWER = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_TOLD), _TOLD)
)


class HttpService(Service):
    role = "http"

    def __init__(
        self,
        gateway: Gateway,
        build: Build,
        bound: Mapping[str, socket.socket],
        processes: int,
        beat: Callable[[], None],
    ) -> None:
        """Set up with bound sockets by endpoint; `beat` is called while the loop turns."""
        self._gateway = gateway
        self._bound = bound
        self._beat = beat
        settings = gateway.settings
        # systemd has the first socket alone, that of the main endpoint
        is_passed = "http-arbiter" in settings.server.passed_sockets
        self.shares_port = is_passed or settings.http.reuse_port
        self.ledger = ledger = Ledger(settings.memory.client_bytes // processes)
        table, access = app.routes(gateway), AccessRules(settings)
        self.tokens = access.tokens
        endpoints = all_endpoints(bound, gateway, build(gateway, table, access), access)
        self._connections = connections = Connections(
            endpoints[MAIN],
            app.inference_heads(gateway, table, access),
            ledger,
            asyncio.get_running_loop().time,
        )
        self.room = connections.room
        self._listeners = Listeners(
            gateway, self.room, "http", "http/1.1", PlainRequest, passed=int(is_passed)
        )
        for name, one in bound.items():
            if name == MAIN:
                self._listeners.add(connections.make, one)
            else:
                make = partial(HttpConnection, connections, endpoints[name], None)
                self._listeners.add(make, one, is_secure=False)
        connections.listeners = self._listeners.all

    async def open(self) -> list[tuple[str, str]]:
        await self._listeners.open()
        titles = {port.name: f"{port.title} " for port in self._gateway.settings.ports}
        return [
            (f"{titles.get(name, '')}HTTPService", address_of(bound))
            for name, bound in self._bound.items()
        ]

    def counts(self) -> Counts:
        return {
            "connections": {"": self._connections.room.added},
            "answers": {str(status): count for status, count in by_status.items()},
            "access_refusals": refusals.counts,
        }

    def check(self) -> None:
        self._beat()
        self._connections.check()
        self._listeners.check()

    def leave(self, is_leaving: bool) -> None:
        self._connections.is_leaving = is_leaving
        self._listeners.leave()

    async def end(self, within_s: float) -> None:
        await self._listeners.end()
        self._connections.end(is_followed=is_followed(self._gateway))

    def end_idle(self) -> bool:
        self._connections.end_still(_STILL_S)
        return not self.room

    async def close(self) -> None:
        self._connections.close()
        self._listeners.close()


class PlainRequest:
    """The refusal of the request on one connection, even if only a part of it has come."""

    def __init__(self) -> None:
        self.is_complete = False

    def answer(self, data: bytes, /) -> bytes:
        self.is_complete = True
        return _ANSWER
