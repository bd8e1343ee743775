"""The ways in which one server replaces another, each as a class that does it again and again."""

from __future__ import annotations

import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path

from tests.faults.replacements.clients import MODELS
from tests.faults.replacements.systemd import Systemd
from tests.support.server import Server, free_ports
from tests.support.waiting import eventually

OPTIONS = ("--http-workers=2", "--grpc-processes=2", "--exit-timeout-secs=60")
_WITHIN_S = 180.0


class Way(ABC):
    """Servers one after the other on the same two ports."""

    http_port: int
    grpc_port: int

    @abstractmethod
    def __init__(self, directory: Path) -> None:
        """Set up; files of the servers lie there."""

    @abstractmethod
    def start(self) -> None:
        """Start the first server."""

    @abstractmethod
    def replace(self) -> float:
        """Replace the server by the next; return how long the old one took to go."""

    @abstractmethod
    def close(self) -> None:
        """Stop the last server."""

    @abstractmethod
    def log_text(self) -> str:
        """Return the logs of all servers."""


class BySystemd(Way):
    """A restart behind sockets of systemd."""

    def __init__(self, directory: Path) -> None:
        server = Server(directory / "server", models=MODELS, options=OPTIONS)
        self._systemd = Systemd(server, "http,grpc")
        self.http_port, self.grpc_port = server.http_port, server.grpc_port

    def start(self) -> None:
        self._systemd.start()
        eventually(self._systemd.server.is_ready, _WITHIN_S, "ready")

    def replace(self) -> float:
        begun_s = time.monotonic()
        status = self._systemd.server.stop(_WITHIN_S)
        gone_s = time.monotonic() - begun_s
        assert status == 0, f"the old server exited with {status}"
        self.start()
        return gone_s

    def close(self) -> None:
        self._systemd.close()

    def log_text(self) -> str:
        return self._systemd.server.log_text()


class OnOnePort(Way):
    """Two servers on the same ports; the old one drains and stops when the new one is ready."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._servers: list[Server] = []
        self.http_port, self.grpc_port = free_ports(2)

    def _next(self) -> Server:
        options = (*OPTIONS, "--reuse-http-port=true", "--reuse-grpc-port=true")
        number = len(self._servers)
        server = Server(self._directory / f"server{number}", models=MODELS, options=options)
        server.http_port, server.grpc_port = self.http_port, self.grpc_port
        server.url = f"http://127.0.0.1:{self.http_port}"
        server.grpc_address = f"127.0.0.1:{self.grpc_port}"
        return server

    def start(self) -> None:
        server = self._next()
        server.launch()
        eventually(lambda: "Started HTTPService" in server.log_text(), _WITHIN_S, "it listens")
        self._servers.append(server)

    def replace(self) -> float:
        old = self._servers[-1]
        self.start()
        begun_s = time.monotonic()
        command = [
            str(Path(sys.executable).with_name("zmqtriton-ctl")),
            f"--server={old.pids()['supervisor'][0]}",
        ]
        done = subprocess.run(
            [*command, "drain", "--then", "stop"],
            capture_output=True,
            text=True,
            timeout=_WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, done
        assert old.process is not None
        assert 0 == old.process.wait(_WITHIN_S), old.log_text()[-3000:]
        return time.monotonic() - begun_s

    def close(self) -> None:
        for server in self._servers:
            if server.returncode is None:
                server.stop()

    def log_text(self) -> str:
        return "\n".join(server.log_text() for server in self._servers)
