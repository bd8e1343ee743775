"""The service of a process of HTTP: the connections of endpoints with a socket each."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from zmqtriton_frontends.access import refusals
from zmqtriton_frontends.gateway.client_report import Counts
from zmqtriton_frontends.gateway.gateway import Gateway, is_followed
from zmqtriton_frontends.http_api import app
from zmqtriton_frontends.http_api.asgi.access import Access
from zmqtriton_frontends.http_api.asgi.route import Route
from zmqtriton_frontends.http_api.server import answer_counts
from zmqtriton_frontends.http_api.server.connections import Connections
from zmqtriton_frontends.http_api.server.endpoints import MAIN, SOCKETS, all_endpoints
from zmqtriton_frontends.process import request_log
from zmqtriton_frontends.process.handshakes import handshakes_of
from zmqtriton_frontends.process.ledger import Ledger, with_share
from zmqtriton_frontends.serving.listener import Listeners, address_of
from zmqtriton_frontends.serving.process import Service

#: Makes the application of a table of routes.
Build = Callable[[Gateway, list[Route], Access], Any]

#: A connection on which nothing has been under way for so long is closed at the end: a client
#: that asks more often is told so by an answer.
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
        table, access = app.routes(gateway), Access(settings)
        served = all_endpoints(bound, gateway, build(gateway, table, access), access)
        endpoints = {
            name: with_share(request_log.with_request_log(application), ledger.requests)
            for name, application in served.items()
        }
        self._connections = connections = Connections(
            endpoints[MAIN],
            app.inference_heads(gateway, table, access),
            *(ledger, asyncio.get_running_loop().time),
        )
        handshakes = handshakes_of(settings.access.tls, "http", "http/1.1", PlainRequest)
        self._listeners = Listeners(gateway, handshakes, passed=int(is_passed))
        for name, one in bound.items():
            if name == MAIN:
                self._listeners.add(connections.make, one)
            else:
                make = partial(connections.make_other, endpoints[name])
                self._listeners.add(make, one, is_secure=False)
        connections.listeners = self._listeners.all

    async def open(self) -> list[tuple[str, str]]:
        await self._listeners.open()
        return [(SOCKETS[name], address_of(bound)) for name, bound in self._bound.items()]

    def count_connections(self) -> int:
        return len(self._connections.room)

    def counts(self) -> Counts:
        return {
            "connections": {"": self._connections.room.added},
            "answers": answer_counts.counts(),
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
        return not self._connections.has_any

    async def close(self) -> None:
        self._connections.close()
        self._listeners.close()


class PlainRequest:
    """The refusal of the request on one connection, however much of it has come."""

    def __init__(self) -> None:
        self.is_complete = False

    def answer(self, data: bytes, /) -> bytes:
        self.is_complete = True
        return _ANSWER
