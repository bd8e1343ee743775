"""Servers on ports of their own behind a proxy, as `zmqtriton-ctl proxy` configures it."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

from tests.faults.replacements.clients import MODELS, OF_SEQUENCES
from tests.faults.replacements.ways import WITHIN_S, SideBySide, drain_and_stop, listen_on
from tests.support.server import Server, free_ports, status_of
from tests.support.waiting import eventually

_ADMIN_COUNT = "membership_healthy"


class BehindProxy(SideBySide):
    """The next server has other ports; the old one drains and stops when the proxy asks both."""

    frontends = ("grpc",)
    #: Where it runs; None where it cannot be had.
    program: str | None

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        [self._statistics_port] = free_ports(1)
        self.announcements = directory / "announced"
        self.configuration = directory / "proxy.yaml"  # Envoy goes by the end of the name
        self._processes: list[subprocess.Popen[bytes]] = []
        self._log = directory / "proxy.log"

    def options_of(self, number: int) -> Sequence[str]:
        self.announcements.mkdir(exist_ok=True)
        return f"--announce={self.announcements / f'{number}.json'}", "--announce-interval-secs=1"

    def place(self, server: Server) -> None:
        """Leave it its own ports."""

    def proxy_words(self) -> list[str]:
        """Return the arguments of `zmqtriton-ctl proxy` but for the kind and the servers."""
        return [
            f"--http=127.0.0.1:{self.http_port}",
            f"--grpc=127.0.0.1:{self.grpc_port}",
            f"--statistics=127.0.0.1:{self._statistics_port}",
            *(f"--model={model}" for model in MODELS),
        ]

    def run(self, *command: str) -> subprocess.Popen[bytes]:
        """Run a command until this way is closed."""
        with self._log.open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        self._processes.append(process)
        return process

    def statistics(self, path: str) -> str:
        url = f"http://127.0.0.1:{self._statistics_port}{path}"
        with urllib.request.urlopen(url, timeout=20) as answer:
            return str(answer.read().decode())

    def is_ready(self) -> bool:
        url = f"http://127.0.0.1:{self.http_port}/v2/models"
        return all(status_of(f"{url}/{model}/ready") == 200 for model in MODELS)

    def start(self) -> None:
        super().start()
        if self._processes:
            eventually(lambda: self.count() == 2, WITHIN_S, "the proxy asks both")
        else:
            self.start_proxy()
            eventually(self.is_ready, WITHIN_S, "the proxy is ready")

    @abstractmethod
    def start_proxy(self) -> None:
        """Start the proxy before the first server."""

    @abstractmethod
    def count(self) -> int:
        """Return how many servers the proxy sends requests to."""

    def _end(self, old: Server) -> None:
        drain_and_stop(old)

    def close(self) -> None:
        super().close()
        for process in reversed(self._processes):
            process.terminate()
            process.wait(60)

    def log_text(self) -> str:
        return f"{super().log_text()}\n{self._log.read_text()}"


def _count_at_haproxy(way: BehindProxy) -> int:
    """Return how many servers HAProxy sends requests for each model to, at least."""
    try:
        rows = [line.split(",") for line in way.statistics("/;csv").splitlines()[1:]]
    except OSError:  # it reloads just now
        return 0
    up = [row[0] for row in rows if row[1] not in ("FRONTEND", "BACKEND") and row[17] == "UP"]
    names = [f"{kind}model:{model}" for kind in ("", "grpc:") for model in MODELS]
    return min(up.count(name) for name in [*names, "grpc_servers"])


class ByHaproxy(BehindProxy):
    """The configuration follows the servers, and HAProxy has them by commands."""

    program = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

    def start_proxy(self) -> None:
        assert self.program is not None
        script = self._directory / "reload"
        pid_file = self._directory / "haproxy.pid"
        script.write_text(f'#!/bin/sh\n[ ! -e {pid_file} ] || kill -USR2 "$(cat {pid_file})"\n')
        script.chmod(0o755)
        follow = ["--follow", f"--write={self.configuration}", f"--reload={script}"]
        follow.append(f"--socket={self._directory / 'haproxy'}")
        words = ["-m", "zmqtriton.ctl.main", "proxy", "haproxy", str(self.announcements)]
        self.run(sys.executable, *words, *follow, *self.proxy_words())
        eventually(self.configuration.exists, WITHIN_S, "the configuration")
        process = self.run(self.program, "-W", "-f", str(self.configuration))
        # a signal would end it before it listens; later it reads what has been written meanwhile
        eventually(lambda: status_of(f"http://127.0.0.1:{self.http_port}/"), WITHIN_S, "it listens")
        pid_file.write_text(str(process.pid))
        process.send_signal(signal.SIGUSR2)

    def count(self) -> int:
        return _count_at_haproxy(self)


class AtTwoPlaces(BehindProxy):
    """The proxy knows both places from the start, in which servers come and go by turns."""

    kind = ""
    #: Of the program, before its configuration.
    words: Sequence[str] = ()

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._places = [tuple(free_ports(2)) for _ in range(2)]
        self._turns = itertools.cycle(self._places)

    def place(self, server: Server) -> None:
        listen_on(server, *next(self._turns))

    def start_proxy(self) -> None:
        servers = [f"127.0.0.1:{http},grpc={grpc}" for http, grpc in self._places]
        words = ["-m", "zmqtriton.ctl.main", "proxy", self.kind, *servers, *self.proxy_words()]
        printed = subprocess.run([sys.executable, *words], capture_output=True, check=True)
        self.configuration.write_bytes(printed.stdout)
        self.run(str(self.program), *self.words, str(self.configuration))


class ByFixedHaproxy(AtTwoPlaces):
    kind = "haproxy"
    program = ByHaproxy.program
    words = ("-W", "-f")

    def count(self) -> int:
        return _count_at_haproxy(self)


class ByEnvoy(AtTwoPlaces):
    """A sequence whose server drains moves, as the guide says: they are left out."""

    kind = "envoy"
    leaves_out = OF_SEQUENCES
    program = shutil.which("envoy", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH')}")

    words = ("--concurrency", "1", "--disable-hot-restart", "-c")

    def count(self) -> int:
        text = self.statistics(f"/stats?filter={_ADMIN_COUNT}")
        return min(int(line.rpartition(" ")[2]) for line in text.splitlines() if line)
