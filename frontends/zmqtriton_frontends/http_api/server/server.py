"""Gunicorn as this server needs it: an arbiter that watches processes, and in each an ASGI loop.

Each process that the arbiter forks makes a lifeline of its own, dies with the arbiter, serves what
`app.build` makes, and at the end leaves: it stops accepting, makes the next answer on each
connection its last, and ends when all connections have. No ZeroMQ before the fork.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import os
import select
import signal
import socket
from collections.abc import Callable
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
from zmqtriton_frontends.gateway import startup
from zmqtriton_frontends.gateway.client_report import ClientReport, Counts
from zmqtriton_frontends.gateway.gateway import NEW_SEQUENCES_S, Gateway, is_followed
from zmqtriton_frontends.http_api import app
from zmqtriton_frontends.http_api.asgi.access import Access
from zmqtriton_frontends.http_api.asgi.route import Route
from zmqtriton_frontends.http_api.server import answer_counts
from zmqtriton_frontends.http_api.server.connections import Connections
from zmqtriton_frontends.http_api.server.endpoints import MAIN, SOCKETS, all_endpoints
from zmqtriton_frontends.http_api.server.listener import Listener
from zmqtriton_frontends.http_api.server.plain_request import PlainRequest
from zmqtriton_frontends.process import request_log
from zmqtriton_frontends.process.allocator import keep_freed_memory
from zmqtriton_frontends.process.handshakes import Handshakes, handshakes_of
from zmqtriton_frontends.process.ledger import Application, Ledger, with_share

_log = logging.getLogger(__name__)

#: A loop that does not turn for so long hangs; requests that wait for a model never stop it.
_HANG_S = 120
_CHECK_EVERY_S = 1.0
#: A connection on which nothing has been under way for so long is closed at the end: a client
#: that asks more often is told so by an answer.
_STILL_S = 1.0
#: How often a leaving process looks whether it is done.
_LEAVE_STEP_S = 0.02


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
            "backlog": 4096,
            "control_socket_disable": True,
            "accesslog": None,
            "logger_class": _Log,
            # its heartbeat is a file's time, which on a real disk can block
            "worker_tmp_dir": self._directory,
        }

    def load(self) -> Callable[[Gateway, list[Route], Access], Any]:
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
        self._lifeline = branch(self.app.lifeline)
        self._loop = uvloop.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._stopping = asyncio.Event()
        #: Nothing in flight is waited for.
        self._is_quick = False
        super().init_process()
        prctl.end(0)

    def load_wsgi(self) -> None:
        self._build = self.app.wsgi()

    # ---------------------------------------------------------------- signals

    def init_signals(self) -> None:
        for number in self.SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        self._loop.add_signal_handler(signal.SIGTERM, self._leave)
        for number in (signal.SIGQUIT, signal.SIGINT):
            self._loop.add_signal_handler(number, self._leave, True)
        for number in (signal.SIGUSR1, signal.SIGWINCH):
            self._loop.add_signal_handler(number, int)  # which does nothing
        self._loop.add_signal_handler(signal.SIGABRT, self.handle_abort, signal.SIGABRT, None)

    def _leave(self, is_quick: bool = False) -> None:
        self.alive = False
        self._is_quick |= is_quick
        self._stopping.set()

    def _stop(self, within_ms: int) -> None:
        """Stop: the server stops.

        The arbiter is told, too, or it would replace this process when that has gone.
        """
        self._leave()
        os.kill(self.ppid, signal.SIGTERM)

    # ---------------------------------------------------------------- serving

    def run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.close()

    async def _serve(self) -> None:
        gateway = Gateway(self._lifeline)
        gateway.on_stop = self._stop
        stopping = asyncio.ensure_future(self._stopping.wait())
        if not await startup.may_open(gateway, stopping):
            return
        table, access = app.routes(gateway), Access(gateway.settings)
        application = self._build(gateway, table, access)
        ledger = Ledger(gateway.settings.memory.client_bytes // self.cfg.workers)
        endpoints = {
            name: with_share(request_log.with_request_log(served), ledger.requests)
            for name, served in all_endpoints(
                self.app.sockets, gateway, application, access
            ).items()
        }
        connections = Connections(
            endpoints[MAIN], app.inference_heads(gateway, table, access), ledger, self._loop.time
        )
        report = ClientReport(
            gateway.call,
            "http",
            ledger,
            connections=lambda: len(connections.room),
            counts=lambda: _counts(connections),
        )
        handshakes = handshakes_of(gateway.settings.access.tls, "http", "http/1.1", PlainRequest)
        connections.listeners = [
            self._listener(name, bound.sock, connections, endpoints[name], handshakes)
            for name, bound in zip(self.app.sockets, self.sockets, strict=True)
        ]
        for listener in connections.listeners:
            await listener.open()
        gc.freeze()
        for name, bound in zip(self.app.sockets, self.sockets, strict=True):
            gateway.listening(SOCKETS[name], startup.address(*bound.getsockname()[:2]))
        is_passed = "http-arbiter" in gateway.settings.server.passed_sockets
        has_successor = is_passed or gateway.settings.http.reuse_port
        gateway.begins_sequences_s = math.inf if has_successor else NEW_SEQUENCES_S
        self._leave_when_told(gateway, connections, is_passed=is_passed)
        while self.alive:
            self.notify()
            connections.check()
            report.check()
            if handshakes is not None:
                handshakes.renew()
            await asyncio.wait((stopping,), timeout=_CHECK_EVERY_S)

        for listener in () if gateway.has_successor else connections.listeners[is_passed:]:
            if gateway.is_ending:
                await listener.end()
        for listener in connections.listeners:
            listener.close()
        await self._finish(connections, is_followed=is_followed(gateway))
        connections.close()
        if handshakes is not None:
            handshakes.close()
        gateway.close()
        gateway.traces.end()

    def _listener(
        self,
        name: str,
        bound: socket.socket,
        connections: Connections,
        application: Application,
        handshakes: Handshakes | None,
    ) -> Listener:
        make: Callable[[], asyncio.BaseProtocol] = partial(connections.make_other, application)
        if name == MAIN:
            make = connections.make
            if handshakes is not None:
                make = handshakes.before(connections.make)
        return Listener(make, bound, self.cfg.backlog)

    def _leave_when_told(
        self, gateway: Gateway, connections: Connections, *, is_passed: bool
    ) -> None:
        """Have clients go elsewhere while the server drains, and when it stops."""

        def tell() -> None:
            connections.is_leaving = gateway.is_stopping or gateway.catalogue.is_draining
            if gateway.is_stopping:
                # systemd has the first alone, that of the main endpoint
                others = len(connections.listeners) if gateway.has_successor else int(is_passed)
                for listener in connections.listeners[:others]:
                    listener.leave()

        gateway.on_retire = gateway.catalogue.on_draining = tell
        tell()

    async def _finish(self, connections: Connections, *, is_followed: bool) -> None:
        """Return when all connections have ended, or the time is up."""
        connections.end(is_followed=is_followed)
        end_s = self._loop.time() + self.cfg.graceful_timeout
        checked_s = self._loop.time()
        while connections.has_any and not self._is_quick:
            await asyncio.sleep(_LEAVE_STEP_S)
            connections.end_still(_STILL_S)
            now_s = self._loop.time()
            if now_s > end_s:
                _log.warning("left with connections that were not done")
                return
            if now_s - checked_s > _CHECK_EVERY_S:
                checked_s = now_s
                self.notify()
                connections.check()


def _counts(connections: Connections) -> Counts:
    return {
        "connections": {"": connections.room.added},
        "answers": answer_counts.counts(),
        "access_refusals": refusals.counts,
    }


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
