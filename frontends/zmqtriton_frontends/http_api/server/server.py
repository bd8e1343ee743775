"""Gunicorn as this server needs it: an arbiter that watches processes, and in each an ASGI loop.

Each process that the arbiter forks makes a lifeline of its own, and dies with the arbiter; it lives
as every process that serves, and serves an `HttpService`: the connections of endpoints with a
socket each. No ZeroMQ before the fork.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import select
import signal
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import uvloop
from gunicorn.app.base import BaseApplication
from gunicorn.glogging import Logger
from gunicorn.workers.base import Worker

from zmqtriton_floor import prctl
from zmqtriton_floor.lifeline import Lifeline, pair
from zmqtriton_floor.settings.frontends import FrontendSettings
from zmqtriton_floor.wire import WorkerForked
from zmqtriton_frontends.access import refusals
from zmqtriton_frontends.gateway.client_report import Counts
from zmqtriton_frontends.gateway.gateway import Gateway, is_followed
from zmqtriton_frontends.http_api import app
from zmqtriton_frontends.http_api.asgi.access import Access, Route
from zmqtriton_frontends.http_api.server import exchange
from zmqtriton_frontends.http_api.server.connection import Connection
from zmqtriton_frontends.http_api.server.endpoints import MAIN, SOCKETS, all_endpoints
from zmqtriton_frontends.http_api.server.inference_heads import InferenceHeads
from zmqtriton_frontends.process import request_log
from zmqtriton_frontends.process.allocator import keep_freed_memory
from zmqtriton_frontends.process.descriptors import max_connections
from zmqtriton_frontends.process.handshakes import handshakes_of
from zmqtriton_frontends.process.ledger import Application, Ledger, with_share
from zmqtriton_frontends.process.room import Room
from zmqtriton_frontends.process.turns import Turns
from zmqtriton_frontends.serving.listener import BACKLOG, Listener, Listeners, address_of
from zmqtriton_frontends.serving.process import Service, ServingProcess

#: A loop that does not turn for so long hangs; requests that wait for a model never stop it.
_HANG_S = 120
_log = logging.getLogger(__name__)


class Connections:
    """The open connections of one process, and what they share.

    There are at most as many as there are descriptors for. Those whose clients do not go on make
    room for new ones; while all do, nothing is accepted, and those who connect wait.
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
        self.room: Room[Connection] = Room(max_connections(), now)
        #: Where they come from.
        self.listeners: list[Listener] = []
        self._is_full = False

    def make(self, below: Any = None) -> Connection:
        """Make a connection for the loop, perhaps one whose transport encrypts for another."""
        connection = Connection(self, self._application, self._inferences)
        connection.below = below
        return connection

    def make_other(self, application: Application, below: Any = None) -> Connection:
        """Make a connection to another application, which answers all requests itself."""
        return Connection(self, application)

    def add(self, connection: Connection) -> None:
        if self.room.is_full and not self._make_room():
            self._is_full = True
            for listener in self.listeners:
                listener.pause()
        self.room.add(connection)

    def _make_room(self) -> bool:
        """Close connections whose clients do not go on; False without any."""
        still = self.room.take_still()
        for connection in still:
            if connection.is_idle:
                connection.close()
            else:
                connection.channel.abort()
        return bool(still)

    def remove(self, connection: Connection) -> None:
        self.room.remove(connection)
        self._accept_again()

    def _accept_again(self) -> None:
        if self._is_full and not self.room.is_full:
            self._is_full = False
            for listener in self.listeners:
                listener.resume()

    def check(self) -> None:
        """Check all connections. To be called once a second."""
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

    @property
    def has_any(self) -> bool:
        return bool(len(self.room))

    def end(self, *, is_followed: bool) -> None:
        """Make the next answer on each connection its last, also amid the sequences it has now.

        Where another server follows, those that have crossed with that end here: no other one
        knows them.
        """
        self.is_leaving, self.is_ending = True, not is_followed
        for connection in self.room:
            connection.sequences.clear()

    def end_still(self, still_s: float) -> None:
        """End those on which nothing has been under way for so long."""
        now = self.now()
        for connection in self.room:
            connection.end_if_still(now, still_s)

    def close(self) -> None:
        for connection in self.room:
            connection.close()


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
            ledger,
            asyncio.get_running_loop().time,
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
            "answers": exchange.counts(),
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


class Server(BaseApplication):  # type: ignore[misc]
    """The arbiter's side."""

    def __init__(
        self,
        settings: FrontendSettings,
        lifeline: Lifeline,
        directory: str,
        sockets: dict[str, int],
    ) -> None:
        """Set up with the descriptors of bound sockets, by endpoint."""
        self.settings = settings
        self.lifeline = lifeline
        self._directory = directory
        self.sockets = sockets
        super().__init__()

    def load_config(self) -> None:
        for key, value in self._gunicorn_settings().items():
            self.cfg.set(key, value)

    def _gunicorn_settings(self) -> dict[str, Any]:
        cores = len(os.sched_getaffinity(0))
        return {
            "bind": [f"fd://{descriptor}" for descriptor in self.sockets.values()],
            "worker_class": HttpProcess,
            "workers": self.settings.http.workers or max(1, cores // 2),
            "preload_app": True,
            "timeout": _HANG_S,
            "graceful_timeout": max(1, self.settings.server.exit_timeout_s),
            "backlog": BACKLOG,
            "control_socket_disable": True,
            "accesslog": None,
            "logger_class": _Log,
            # its heartbeat is a file's time, which on a real disk can block
            "worker_tmp_dir": self._directory,
        }

    def load(self) -> Build:
        """Return nothing yet.

        An application needs a gateway, which a process makes after the fork.
        """
        gc.collect()
        gc.freeze()  # the pages with what is imported by now stay shared
        return app.build


class _Log(Logger):  # type: ignore[misc]
    """Sends gunicorn's records where all others go, without its everyday messages."""

    def setup(self, cfg: Any) -> None:
        self.cfg = cfg
        self._access_log_enabled = False
        self.error_log.propagate = True
        self.error_log.setLevel(logging.WARNING)


class HttpProcess(Worker):  # type: ignore[misc]
    """One process that serves."""

    def init_process(self) -> None:
        prctl.set_name("zmqtriton-http")
        prctl.die_with(self.ppid)
        keep_freed_memory()
        self._loop = uvloop.new_event_loop()
        asyncio.set_event_loop(self._loop)
        gateway = Gateway(branch(self.app.lifeline))
        self._process = ServingProcess(gateway, self._make, self._stop_arbiter)
        super().init_process()
        prctl.end(0)

    def load_wsgi(self) -> None:
        self._build = self.app.wsgi()

    def init_signals(self) -> None:
        for number in self.SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        handle = self._loop.add_signal_handler
        handle(signal.SIGTERM, self._process.stop, self.cfg.graceful_timeout)
        for number in (signal.SIGQUIT, signal.SIGINT):
            handle(number, self._process.stop, 0.0)
        for number in (signal.SIGUSR1, signal.SIGWINCH):
            handle(number, int)  # which does nothing
        handle(signal.SIGABRT, self.handle_abort, signal.SIGABRT, None)

    def _stop_arbiter(self) -> None:
        """Tell the arbiter, too, or it would replace this process when that has gone."""
        os.kill(self.ppid, signal.SIGTERM)

    def _make(self, gateway: Gateway) -> HttpService:
        bound = {name: it.sock for name, it in zip(self.app.sockets, self.sockets, strict=True)}
        return HttpService(gateway, self._build, bound, self.cfg.workers, self.notify)

    def run(self) -> None:
        try:
            self._loop.run_until_complete(self._process.run())
        finally:
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.close()


def branch(arbiters: Lifeline) -> Lifeline:
    """Make a lifeline of this process's own, by sending one end of a pair over the arbiter's."""
    ours, theirs = pair()
    arbiters.send(WorkerForked(os.getpid()), theirs.fileno())
    while arbiters.is_backed_up:
        select.select([], [arbiters], [])
        arbiters.flush()
    theirs.close()
    arbiters.abandon()
    return Lifeline(ours)
