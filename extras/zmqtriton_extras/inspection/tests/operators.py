"""The operator of a debugger: his program, and what the server says of it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.standard.ctl.system.commands import ctl, place
from tests.standard.tools.advice.world import BODY, code_of
from tests.standard.tools.system import broken_models as broken
from tests.support.server import Server
from tests.support.waiting import eventually

#: Models to debug: one with a breakpoint() of its own, and one without.
STOPS = code_of(broken.executing("secret = 6 * 7", "breakpoint()", "secret += 1"))
RUNS = code_of(
    broken.executing("total = 0", "for number in range(3):", "    total += number", "done = total")
)


class Terminal:
    """An operator's program, and what it has shown so far."""

    def __init__(self, server: Server, *words: str) -> None:
        program = Path(sys.executable).with_name("zmqtriton-ctl")
        self.process = subprocess.Popen(
            [program, place(server), "debug", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.shown = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        while data := os.read(self.process.stdout.fileno(), 65536):
            self.shown += data.decode()

    def type(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def wait_for(self, text: str) -> None:
        try:
            eventually(lambda: text in self.shown, 60)
        except AssertionError:
            raise AssertionError(f"{text!r} is not in {self.shown!r}") from None

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


@contextmanager
def operator(server: Server, *words: str) -> Iterator[Terminal]:
    terminal = Terminal(server, *words)
    try:
        yield terminal
    finally:
        terminal.close()
    # a breakpoint() that comes before is passed by, as part of that session
    wait_for(lambda: not debugged(server), "the session is over")


@contextmanager
def asked(server: Server, model: str) -> Iterator[Future[Any]]:
    """A request that is answered in the end."""
    with ThreadPoolExecutor(1) as pool:
        path = f"/v2/models/{model}/infer"
        future = pool.submit(server.request_json, path, BODY, within_s=300)
        yield future
        assert 200 == future.result(120)[0]


def received(connection: socket.socket) -> bytes:
    """What comes next on a connection; b"" from one that is closed, with bytes unread or not."""
    try:
        return connection.recv(100)
    except ConnectionResetError:
        return b""


def debugged(server: Server) -> list[Any]:
    return json.loads(ctl(server, "status", "-o", "json").output)["debugged"]


def wait_for(is_so: Callable[[], object], what: str) -> None:
    eventually(is_so, 60, what)
