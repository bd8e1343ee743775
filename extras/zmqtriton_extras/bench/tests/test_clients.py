"""Client processes whose command is interrupted between two measurements."""

from __future__ import annotations

import base64
import itertools
import os
import signal
import socketserver
import threading

import pytest

from zmqtriton_extras.bench.clients import Clients

pytestmark = pytest.mark.slow

REQUEST = b"POST / HTTP/1.1\r\n\r\n"


class AnswersEach(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while self.request.recv(len(REQUEST)):
            self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")


def test_an_interrupt_between_warm_up_and_measurement_keeps_the_warm_up() -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), AnswersEach) as server:
        threading.Thread(target=server.serve_forever).start()
        plan = {
            "kind": "http",
            "address": f"127.0.0.1:{server.server_address[1]}",
            "has_tls": False,
            "request": base64.b64encode(REQUEST).decode(),
            "timeout_s": 30.0,
            "headers": {},
            "is_decoupled": False,
        }
        reads = itertools.count()

        def read() -> int:
            number = next(reads)
            if number == 1:
                os.kill(os.getpid(), signal.SIGINT)
            return number

        with Clients(1) as clients:
            measured, before, after = clients.measure(plan, 1, seconds=30, read=read)
        server.shutdown()

    assert clients.is_interrupted
    assert measured.latencies
    assert (before, after) == (0, 2)
