"""kill -9 of the supervisor under load: nothing of the server may be left."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import NamedTuple

from tests.faults.load import Load
from tests.support import leaks
from tests.support.server import Server
from tests.support.waiting import eventually


class Death(NamedTuple):
    """One kill and what followed."""

    #: From the kill until no process, file, socket or port is left.
    gone_ms: float
    #: From the next start, over the same repository and ports, until it is ready.
    ready_ms: float


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def kill_and_measure(folder: Path) -> Death:
    """One round, with a server of its own."""
    mark = os.environ[leaks.MARK_VARIABLE]
    before = leaks.marked_processes(mark)
    runtime = folder / "run"
    server = Server(
        folder / "s",
        models=["journal", "add_sub"],
        options=[f"--runtime-directory={runtime}"],
    )
    server.start()
    ports = (server.http_port, server.grpc_port, server.metrics_port)
    with Load(server.http_port, clients=8, milliseconds=20):
        time.sleep(0.3)
        killed_ns = time.monotonic_ns()
        server.kill()

        def nothing_left() -> bool:
            processes = leaks.marked_processes(mark) - before
            files = runtime.exists() and any(runtime.iterdir())
            return not processes and not files and all(map(_is_free, ports))

        eventually(nothing_left, 30, "everything gone")
        gone_ms = (time.monotonic_ns() - killed_ns) / 1e6
    started_ns = time.monotonic_ns()
    server.process = None
    server.start()
    ready_ms = (time.monotonic_ns() - started_ns) / 1e6
    assert server.stop() == 0
    return Death(gone_ms, ready_ms)
