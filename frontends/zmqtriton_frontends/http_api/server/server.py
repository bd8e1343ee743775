"""Gunicorn as this server needs it: an arbiter that watches processes, and in each an ASGI loop.

Each process that the arbiter forks makes a lifeline of its own, dies with the arbiter, serves what
`app.build` makes, and at the end drains: it stops accepting, answers new requests with 503, and
leaves as soon as nothing is in flight. No ZeroMQ before the fork.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import select
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
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
from zmqtriton_frontends.gateway.gateway import Gateway
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
#: After the word to stop: how long connections that were open may bring one request more.
_STOP_GRACE_S = 0.5
#: How often a draining process checks whether it is done.
_DRAIN_STEP_S = 0.01


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
        gateway.stop_grace_s = _STOP_GRACE_S
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
        self._watch_for_retirement(gateway, connections.listeners)
        while self.alive:
            self.notify()
            connections.check()
            report.check()
            if handshakes is not None:
                handshakes.renew()
            await asyncio.wait((stopping,), timeout=_CHECK_EVERY_S)

        for listener in connections.listeners:
            listener.close()
        await self._drain(connections)
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

    def _watch_for_retirement(self, gateway: Gateway, listeners: Sequence[Listener]) -> None:
        """Have the ports left as soon as the server stops, if others serve them, too."""
        is_passed = "http-arbiter" in gateway.settings.server.passed_sockets
        if not is_passed and not gateway.settings.http.reuse_port:
            return

        # systemd passes the first alone, that of the main endpoint
        shared = listeners[:1] if is_passed else listeners

        def leave() -> None:
            if not is_passed:
                self._end_listening()
            for listener in shared:
                listener.close()

        gateway.on_retire = leave
        if gateway.is_stopping:
            leave()

    def _end_listening(self) -> None:
        """End all listening: new clients must find the other servers there.

        Not for a socket that systemd has passed, where they wait for the next server.
        """
        for listener in self.sockets:
            with suppress(OSError):  # another process of ours was faster
                # closed it would still be the arbiter's, for which the kernel accepts, too
                listener.sock.shutdown(socket.SHUT_RD)

    async def _drain(self, connections: Connections) -> None:
        # A request may be on its way on a connection that was idle: it is answered, and the last.
        connections.is_leaving = True
        grace_until_s = self._loop.time() + _STOP_GRACE_S
        while connections.has_any and self._loop.time() < grace_until_s:
            await asyncio.sleep(_DRAIN_STEP_S)
        connections.refuse_requests()
        deadline = self._loop.time() + self.cfg.graceful_timeout
        while self._loop.time() < deadline and not self._is_quick:
            # at least one turn, so that requests already received are answered
            await asyncio.sleep(_DRAIN_STEP_S)
            if connections.are_idle:
                return
            self.notify()
            connections.check()
        _log.warning("left with connections that were not done")


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
