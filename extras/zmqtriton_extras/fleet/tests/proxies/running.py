"""A real proxy with a configuration that `zmqtriton-ctl proxy` prints."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.support.server import free_ports, status_of
from tests.support.waiting import eventually
from zmqtriton_extras.fleet.tests.proxies.programs import run_command


class RunningProxy:
    """Configured from a directory of announcements."""

    def __init__(self, kind: str, announcements: Path, directory: Path, *options: str) -> None:
        self.kind = kind
        self.http_port, self.grpc_port = free_ports(2)
        # Envoy goes by the end of the name
        self.configuration = directory / "proxy.yaml"
        self.process: subprocess.Popen[bytes] | None = None
        self._announcements = announcements
        self._options = options

    def configure(self, *options: str) -> None:
        where = [f"--http=127.0.0.1:{self.http_port}", f"--grpc=127.0.0.1:{self.grpc_port}"]
        command = [sys.executable, "-m", "zmqtriton.ctl.main", "proxy", self.kind]
        command += [str(self._announcements), *where, "--statistics=", *self._options, *options]
        text = subprocess.run(command, capture_output=True, check=True).stdout
        self.configuration.write_bytes(text)

    def reload(self) -> None:
        """Have HAProxy read its configuration again, and wait for the end of the old worker."""
        assert self.process is not None
        before = self._workers()
        self.process.send_signal(signal.SIGUSR2)
        eventually(lambda: self._workers() and not self._workers() & before, 60)

    def age_s(self, now_s: float) -> float:
        """The age of its worker."""
        [worker] = self._workers()
        return now_s - worker.create_time()

    def _workers(self) -> set[psutil.Process]:
        assert self.process is not None
        return set(psutil.Process(self.process.pid).children())

    def status(self, path: str) -> int:
        return status_of(f"http://127.0.0.1:{self.http_port}{path}")

    def server_of(self, value: str, header: str = "X-Sequence") -> str:
        """The --id of the server that a request with this header is sent to."""
        url = f"http://127.0.0.1:{self.http_port}/v2"
        request = urllib.request.Request(url, headers={header: value})
        with urllib.request.urlopen(request, timeout=20) as answer:
            return str(json.load(answer)["name"])


@contextmanager
def proxy_of(
    kind: str, announcements: Path, directory: Path, *options: str, model: str
) -> Iterator[RunningProxy]:
    """A proxy that has been configured from announcements, and through which a model is ready."""
    proxy = RunningProxy(kind, announcements, directory, *options)
    proxy.configure()
    with (
        (directory / "proxy.log").open("wb") as log,
        subprocess.Popen(
            run_command(kind, proxy.configuration), stdout=log, stderr=log
        ) as proxy.process,
    ):
        try:
            paths = ["/v2/health/ready", f"/v2/models/{model}/ready"]
            eventually(lambda: [proxy.status(path) for path in paths] == [200, 200], 60)
            yield proxy
        finally:
            proxy.process.terminate()
