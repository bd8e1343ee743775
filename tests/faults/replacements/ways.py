"""The ways in which one server replaces another, each as a class that does it again and again."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from pathlib import Path

import psutil

from tests.faults.replacements.clients import MODELS, Client, GrpcSequenceClient
from tests.support.server import Server, free_ports
from tests.support.waiting import eventually

OPTIONS = ("--http-workers=2", "--grpc-processes=2", "--exit-timeout-secs=90")
WITHIN_S = 180.0


#: In microseconds, how long models wait for the next request of a sequence: in a test's own, and
#: here, where clients of a busy machine pause for longer.
_IDLE, _LONG_IDLE = (
    "max_sequence_idle_microseconds: 5000000",
    "max_sequence_idle_microseconds: 20000000",
)


def be_patient(repository: Path) -> None:
    """Have the model of sequences, if it is there, wait longer for its clients."""
    for config in repository.glob("sequences/config.pbtxt"):
        text = config.read_text()
        assert _IDLE in text
        config.write_text(text.replace(_IDLE, _LONG_IDLE))


#: Does between fork and exec what systemd does: names the descriptors from 3 on.
_EXEC = """
import os, sys
names, *descriptors, end = sys.argv[1].split(","), *map(int, sys.argv[2].split(",")), 0
for number, descriptor in enumerate(descriptors[: len(names)]):
    os.dup2(descriptor, 3 + number)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(names))}
os.environ["LISTEN_FDNAMES"] = ":".join(names)
os.execvp(sys.argv[3], sys.argv[3:])
"""


def listen_on(server: Server, http_port: int, grpc_port: int) -> None:
    """Choose the ports of a server that is not started."""
    server.http_port, server.grpc_port = http_port, grpc_port
    server.url, server.grpc_address = f"http://127.0.0.1:{http_port}", f"127.0.0.1:{grpc_port}"


class Systemd:
    """systemd as far as its server sees it: listens, starts, passes two sockets, stops."""

    def __init__(self, server: Server, names: str) -> None:
        self.server = server
        self._names = names
        self._sockets = [socket.create_server(("127.0.0.1", 0), backlog=4096) for _ in range(2)]
        listen_on(server, *(each.getsockname()[1] for each in self._sockets))

    def start(self) -> None:
        # Far from 3 and 4, so that none is written over before it is moved there.
        passed = [os.dup(held.fileno()) for held in self._sockets]
        with self.server.log.open("ab") as log, ExitStack() as copies:
            for number in passed:
                copies.callback(os.close, number)
            self.server.process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    _EXEC,
                    self._names,
                    ",".join(map(str, passed)),
                    *self.server.command,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=passed,
            )

    def restart(self) -> None:
        assert 0 == self.server.stop()
        self.start()

    def close(self) -> None:
        if self.server.returncode is None:
            self.server.stop()
        for held in self._sockets:
            held.close()


class Way(ABC):
    """Servers one after the other on the same two ports."""

    http_port: int
    grpc_port: int
    #: Clients that lose something in this way, as the guide says.
    leaves_out: tuple[type[Client], ...] = ()

    @abstractmethod
    def __init__(self, directory: Path) -> None:
        """Set up; files of the servers lie there."""

    def __enter__(self) -> Way:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

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
        be_patient(server.repository)
        self._systemd = Systemd(server, "http,grpc")
        self.http_port, self.grpc_port = server.http_port, server.grpc_port

    def start(self) -> None:
        self._systemd.start()
        eventually(self._systemd.server.is_ready, WITHIN_S, "ready")

    def replace(self) -> float:
        begun_s = time.monotonic()
        status = self._systemd.server.stop(WITHIN_S)
        gone_s = time.monotonic() - begun_s
        assert status == 0, f"the old server exited with {status}"
        self.start()
        return gone_s

    def close(self) -> None:
        self._systemd.close()

    def log_text(self) -> str:
        return self._systemd.server.log_text()


class SideBySide(Way):
    """Servers with directories of their own, of which two run for a while."""

    #: Of all servers, and of those that replace another.
    options: tuple[str, ...] = ()
    options_of_next: tuple[str, ...] = ()
    models: Sequence[str] = MODELS
    frontends: Collection[str] = ("grpc", "metrics")

    def __init__(self, directory: Path, more_options: Sequence[str] = ()) -> None:
        self._directory = directory
        self._more_options = more_options
        self._numbers = itertools.count()
        self.servers: list[Server] = []
        self.http_port, self.grpc_port = free_ports(2)

    def next(self) -> Server:
        """Return another server."""
        number = next(self._numbers)
        options = (*OPTIONS, *self.options_of(number), *self._more_options)
        directory = self._directory / f"server{number}"
        server = Server(directory, models=self.models, options=options, frontends=self.frontends)
        be_patient(server.repository)
        self.place(server)
        return server

    def options_of(self, number: int) -> Sequence[str]:
        """Return what is particular to one of the servers."""
        return (*self.options, *(self.options_of_next if number else ()))

    def place(self, server: Server) -> None:
        """Have the server listen on the same ports as all."""
        listen_on(server, self.http_port, self.grpc_port)

    def start(self) -> None:
        server = self.next()
        self.servers.append(server)
        server.launch()
        eventually(lambda: "Started HTTPService" in server.log_text(), WITHIN_S, "it listens")

    def replace(self) -> float:
        old = self.servers[-1]
        self.start()
        begun_s = time.monotonic()
        self._end(old)
        assert 0 == old.wait(WITHIN_S), old.log_text()[-3000:]
        return time.monotonic() - begun_s

    @abstractmethod
    def _end(self, old: Server) -> None:
        """Have the old server end, now that the next one listens."""

    def close(self) -> None:
        for server in self.servers:
            if server.returncode is None:
                server.stop()

    def log_text(self) -> str:
        return "\n".join(server.log_text() for server in self.servers)


def drain_and_stop(server: Server) -> None:
    """Send a server's clients elsewhere, and stop it when they have gone."""
    run_ctl(f"--server=pid:{server.pid}", "drain", "--then", "stop")


def run_ctl(*words: str) -> str:
    program = str(Path(sys.executable).with_name("zmqtriton-ctl"))
    done = subprocess.run(
        [program, *words], capture_output=True, text=True, timeout=WITHIN_S, check=False
    )
    assert done.returncode == 0, done
    return done.stdout


class OnOnePort(SideBySide):
    """Two servers on the same ports; the old one drains and stops when the new one is ready."""

    options = ("--reuse-http-port=true", "--reuse-grpc-port=true")

    def _end(self, old: Server) -> None:
        drain_and_stop(old)


class ByTakeOver(SideBySide):
    """The new server has the sockets from the old one, and tells it to go when it is ready."""

    options_of_next: tuple[str, ...] = ("--take-over",)

    def _end(self, old: Server) -> None:
        """Do nothing: the new server has told it."""


class OneByOne(ByTakeOver):
    """The new server has the sockets at once, and loads its models when the old one has ended."""

    options_of_next = ("--take-over", "--one-by-one")


class ByCommand(SideBySide):
    """`zmqtriton-ctl replace`, to other options and back."""

    _FORWARD = ("--http-workers=1", "--grpc-processes=1", "--log-verbose=1")

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._pid = 0
        self._turns = itertools.cycle([self._FORWARD, ()])

    def replace(self) -> float:
        [server] = self.servers
        before = self._pid or server.pid
        options = server.command[server.command.index("zmqtriton") + 1 :]
        words = [f"--server={before}", "replace", "-o", "json", "--", *options, *next(self._turns)]
        answer = json.loads(run_ctl(*words))
        begun_s = time.monotonic()
        self._pid = answer["pid"]
        if server.returncode is None:
            assert 0 == server.wait(WITHIN_S), server.log_text()[-3000:]
        eventually(lambda: not psutil.pid_exists(before), WITHIN_S, "the old server has gone")
        return time.monotonic() - begun_s

    def _end(self, old: Server) -> None:
        """Do nothing: the new server has told it."""

    def close(self) -> None:
        super().close()
        if self._pid:
            os.kill(self._pid, signal.SIGTERM)
            eventually(lambda: not psutil.pid_exists(self._pid), WITHIN_S, "it has ended")


class WithGrpcio(ByTakeOver):
    """The same with grpcio, which has no sockets to give: old and new listen side by side."""

    options = ("--grpc-transport=grpcio",)
    leaves_out = (GrpcSequenceClient,)


class InOneDirectory(ByTakeOver):
    """The same, with one named runtime directory for all."""

    def __init__(self, directory: Path, more_options: Sequence[str] = ()) -> None:
        self.runtime = directory / "run"
        super().__init__(directory, [f"--runtime-directory={self.runtime}", *more_options])
