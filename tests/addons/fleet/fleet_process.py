"""`zmqtriton fleet up` as a process, with its announcements and its proxy."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from tests.support.server import free_ports, status_of
from tests.support.waiting import eventually

_START_WITHIN_S = 120.0
_MODELS = ROOT / "tests" / "models"


class FleetProcess:
    """Some nodes behind HAProxy."""

    def __init__(self, *options: str, repository: Path = _MODELS, nodes: int = 2) -> None:
        self._nodes = nodes
        self.http_port, self.grpc_port = free_ports(2)
        self._holder = tempfile.TemporaryDirectory(prefix="fleet-")
        self.directory = Path(self._holder.name)
        self._log = self.directory / "fleet.log"
        self._command = [
            *(sys.executable, "-m", "zmqtriton", "fleet", "up", f"--nodes={nodes}"),
            f"--model-repository={repository}",
            f"--directory={self.directory}",
            f"--proxy-http=127.0.0.1:{self.http_port}",
            f"--proxy-grpc=127.0.0.1:{self.grpc_port}",
            "--proxy-statistics=",
            "--log-info=false",
            *options,
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def __enter__(self) -> FleetProcess:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        try:
            self.wait_until_ready()
        except BaseException:
            self._process.kill()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self.stop()
        self._holder.cleanup()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal, and return its exit status."""
        os.kill(self.pid, number)
        return self.wait()

    def wait(self) -> int:
        """Wait for its end, and return its exit status."""
        assert self._process is not None
        return self._process.wait(_START_WITHIN_S)

    def announced(self) -> list[dict[str, Any]]:
        """Return what servers have announced, by the names of their nodes."""
        paths = sorted(self.directory.glob("node-*.json"))
        return [json.loads(path.read_text()) for path in paths]

    def pids(self) -> set[int]:
        return {each["pid"] for each in self.announced()}

    def wait_until_ready(self, without: int = 0) -> None:
        """Wait until all servers are ready behind the proxy, none of which is this process."""

        def is_ready() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, self.log
            try:
                announcements = self.announced()
            except FileNotFoundError:
                return False
            states = [each["state"] for each in announcements if each["pid"] != without]
            return states == ["ready"] * self._nodes and self.status("/v2/health/ready") == 200

        eventually(is_ready, _START_WITHIN_S)

    def status(self, path: str) -> int:
        """Ask through the proxy; 0 if there is no answer."""
        return status_of(f"http://127.0.0.1:{self.http_port}{path}")
