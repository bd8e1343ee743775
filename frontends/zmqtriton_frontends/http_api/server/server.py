"""Gunicorn as this server needs it: an arbiter that watches processes, each with an ASGI loop.

Each process that the arbiter forks makes its own lifeline, and dies with the arbiter; otherwise it
is like every process that serves, and serves an `HttpService`. No ZeroMQ is used before the fork.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import select
import signal
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
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.http_api import app
from zmqtriton_frontends.http_api.server.service import Build, HttpService
from zmqtriton_frontends.process.allocator import keep_freed_memory
from zmqtriton_frontends.serving.listener import BACKLOG
from zmqtriton_frontends.serving.process import ServingProcess

#: Seconds without a turn of its loop after which a worker hangs, and is replaced; requests that
#: wait for a model never stop the loop.
_HANG_S = 120


class ListenerOwner(BaseApplication):  # type: ignore[misc]
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
        settings = {
            "bind": [f"fd://{descriptor}" for descriptor in self.sockets.values()],
            "worker_class": HttpProcess,
            "workers": self.settings.http.workers or max(1, len(os.sched_getaffinity(0)) // 2),
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
        for key, value in settings.items():
            self.cfg.set(key, value)

    def load(self) -> Build:
        """Return nothing yet.

        An application needs a gateway, which each process makes after the fork.
        """
        gc.collect()
        gc.freeze()  # the pages with what is imported by now stay shared
        return app.build


class _Log(Logger):  # type: ignore[misc]
    """Sends gunicorn's records to the server's log, without its everyday messages."""

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
        # otherwise the arbiter would replace this process when it ends
        self._process = ServingProcess(
            gateway, self._make, partial(os.kill, self.ppid, signal.SIGTERM)
        )
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
    """Make a lifeline for this process: a pair, with one end sent over the arbiter's lifeline."""
    ours, theirs = pair()
    arbiters.send(WorkerForked(os.getpid()), theirs.fileno())
    while arbiters.is_backed_up:
        select.select([], [arbiters], [])
        arbiters.flush()
    theirs.close()
    arbiters.abandon()
    return Lifeline(ours)
