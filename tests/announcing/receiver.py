"""A receiver of announcements for a test: a thread that takes what is posted.

with Receiver() as receiver:
    Server(directory, options=[f"--announce={receiver.url}"])
    receiver.last
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from tests.support.server import free_ports


class Receiver:
    """Listens between `with` and its end; meanwhile it may be closed and opened again."""

    def __init__(self) -> None:
        (self._port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self._port}/servers"
        #: What it answers.
        self.status = 200
        self.received: list[dict[str, Any]] = []
        self.authorizations: list[str | None] = []

    @property
    def last(self) -> dict[str, Any]:
        """The newest announcement, as a reader judges it; empty before the first."""
        return max(self.received, key=lambda found: float(found["at_s"]), default={})

    def __enter__(self) -> Receiver:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def open(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if receiver.status == 200:
                    receiver.received.append(json.loads(body))
                    receiver.authorizations.append(self.headers["Authorization"])
                self.send_response(receiver.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
