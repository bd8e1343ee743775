"""Requests that a real HAProxy repeats, since the server that had them has died."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.raw_http import raw_request
from tests.support.server import free_ports
from tests.support.waiting import eventually
from zmqtriton_extras.fleet.proxies.command import proxy
from zmqtriton_extras.fleet.tests.proxies.programs import run_command

pytestmark = pytest.mark.system

BODY = b"{}"


class PlayedServer(ThreadingHTTPServer):
    """Is ready, and answers inferences, or closes their connections when it has read them."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.address = f"127.0.0.1:{self.server_port}"
        self.is_dying = False
        self.has_inference = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))
        self._thread.start()

    def server_close(self) -> None:
        self.shutdown()
        self._thread.join()
        super().server_close()


class _Handler(BaseHTTPRequestHandler):
    server: PlayedServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        self.server.has_inference.set()
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.is_dying:
            self.close_connection = True
        else:
            self.do_GET()

    def log_message(self, *words: object) -> None:
        """Write nothing: a test's output is for what fails."""


@contextmanager
def _haproxy(servers: list[PlayedServer], directory: Path) -> Iterator[int]:
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
    request = raw_request("POST", "/v2/models/m/infer", BODY)
    head, body = request[: -len(BODY)], request[-len(BODY) :]
    parts = [request] if is_whole else [head, body]
    with (
        PlayedServer() as good,
        PlayedServer() as dying,
        _haproxy([good, dying], tmp_path) as port,
    ):
        dying.is_dying = True
        answers = [_ask(port, *parts, between=dying.has_inference)[:15] for _ in range(4)]

    assert answers == [b"HTTP/1.1 200 OK"] * 4
    assert dying.has_inference.is_set()
