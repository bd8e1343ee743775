"""A thread that takes what is posted to it over HTTP, for tests of what a server tells others."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

from tests.support.server import free_ports

_Own = TypeVar("_Own", bound="PostReceiver")


class PostReceiver(ABC):
    """Listens between `with` and its end; meanwhile it may be closed and opened again."""

    def __init__(self, path: str) -> None:
        (self._port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self._port}{path}"
        #: What it answers.
        self.status = 200
        self.answer_headers: dict[str, str] = {}
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread

    @abstractmethod
    def take(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """Return the status and the body of the answer. Names of headers are in lower case."""

    def __enter__(self: _Own) -> _Own:
        self.open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def open(self) -> None:
        receiver = self

        class Exchange(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                status, answer = receiver.take(self.path, headers, body)
                self.send_response(status)
                for name, value in receiver.answer_headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *arguments: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Exchange)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = None
