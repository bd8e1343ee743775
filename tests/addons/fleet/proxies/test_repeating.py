"""Requests that a real HAProxy repeats, since the server that had them has died."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.addons.fleet.proxies.programs import run_command
from tests.support.raw_http import raw_request
from tests.support.server import free_ports
from tests.support.waiting import eventually
from zmqtriton_addons.fleet.proxies.command import proxy

pytestmark = pytest.mark.system

BODY = b"{}"
_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


class DyingServer:
    """Is ready, and answers inferences, or closes their connections when it has read them."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.is_dying = False
        self.has_inference = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            first = lines.readline()
            for line in lines:
                if line == b"\r\n":
                    break
            if first.startswith(b"POST"):
                self.has_inference.set()
                lines.read(len(BODY))
                if self.is_dying:
                    return
            connection.sendall(_OK)


@contextmanager
def _haproxy(servers: list[DyingServer], directory: Path) -> Iterator[int]:
    [port] = free_ports(1)
    words = ["haproxy", *(server.address for server in servers), "--may-repeat"]
    words += [f"--http=127.0.0.1:{port}", "--grpc=", "--statistics="]
    configuration = directory / "haproxy.cfg"
    configuration.write_text(CliRunner().invoke(proxy, words).stdout)
    with subprocess.Popen(run_command("haproxy", configuration)) as process:
        try:
            eventually(lambda: b"200 OK" in _ask(port, raw_request("GET", "/v2", b"")), 60)
            yield port
        finally:
            process.terminate()


def _ask(port: int, *parts: bytes, between: threading.Event | None = None) -> bytes:
    """Return the first bytes of the answer; after each part wait for the event, but not long."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            for part in parts:
                connection.sendall(part)
                if between is not None:
                    between.wait(0.3)
            return connection.recv(1000)
    except OSError:
        return b""


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_request_is_repeated_however_its_body_came(is_whole: bool, tmp_path: Path) -> None:
    servers = [DyingServer(), DyingServer()]
    dying = servers[1]
    request = raw_request("POST", "/v2/models/m/infer", BODY)
    head, body = request[: -len(BODY)], request[-len(BODY) :]
    parts = [request] if is_whole else [head, body]
    answers = []
    with _haproxy(servers, tmp_path) as port:
        dying.is_dying = True
        for _ in range(4):
            answers.append(_ask(port, *parts, between=dying.has_inference)[:15])
    for server in servers:
        server.listener.close()

    assert [b"HTTP/1.1 200 OK"] * 4 == answers
    assert dying.has_inference.is_set()
