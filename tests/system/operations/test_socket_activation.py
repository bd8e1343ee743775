"""Sockets that systemd holds: a server is restarted, and no connection is refused meanwhile.

The test plays systemd: it listens, starts one server after the other, and passes the sockets.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import grpc
import pytest

from tests.faults.replacements.ways import Systemd
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

#: So many requests must be answered by each server.
_ENOUGH = 20
_INPUTS = [
    {"name": name, "shape": [1, 16], "datatype": "FP32", "data": [1] * 16}
    for name in ("INPUT0", "INPUT1")
]
_REQUEST = json.dumps({"inputs": _INPUTS}).encode()


class Clients:
    """One client of each protocol, with a new connection for each request."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.failures: list[str] = []
        #: By protocol.
        self.answered = {"http": 0, "grpc": 0}
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=(protocol, ask))
            for protocol, ask in (("http", self._ask_http), ("grpc", self._ask_grpc))
        ]
        for thread in self._threads:
            thread.start()

    def _repeat(self, protocol: str, ask) -> None:  # type: ignore[no-untyped-def]
        while not self._is_over.is_set():
            try:
                ask()
                self.answered[protocol] += 1
            except (OSError, grpc.RpcError) as error:
                self.failures.append(f"{protocol}: {error!r}")
            self._is_over.wait(0.005)

    def _ask_http(self) -> None:
        url = f"{self._server.url}/v2/models/add_sub/infer"
        with urllib.request.urlopen(url, _REQUEST, timeout=60) as answer:
            assert answer.status == 200

    def _ask_grpc(self) -> None:
        options = [
            ("grpc.use_local_subchannel_pool", 1),
            # for how long it waits for a server that is not there yet
            ("grpc.min_reconnect_backoff_ms", 60_000),
        ]
        with grpc.insecure_channel(self._server.grpc_address, options) as channel:
            live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
            assert live(b"", timeout=60) == b"\x08\x01"

    def await_answers(self) -> None:
        before = dict(self.answered)

        def all_went_on() -> bool:
            return all(count >= before[name] + _ENOUGH for name, count in self.answered.items())

        eventually(all_went_on, 60, f"answers; {self.failures[:3]}")

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    systemd = Systemd(
        Server(tmp_path / "s", models=["add_sub"], frontends=("grpc",)), "zmqtriton.socket,grpc"
    )
    yield systemd
    systemd.close()


def _has_started_twice(systemd: Systemd, service: str) -> bool:
    return 2 == systemd.server.log_text().count(f"Started {service}")


def test_a_restart_fails_no_request(systemd: Systemd) -> None:
    # Who comes before the first server waits for it.
    clients = Clients(systemd.server)
    try:
        systemd.start()
        clients.await_answers()
        systemd.restart()
        clients.await_answers()
    finally:
        clients.stop()

    assert [] == clients.failures
    for service in (
        f"HTTPService at 127.0.0.1:{systemd.server.http_port}",
        f"GRPCInferenceService at {systemd.server.grpc_address}",
    ):
        eventually(partial(_has_started_twice, systemd, service), 60)


@pytest.mark.parametrize(
    ("names", "options", "text"),
    [
        ("x,y", ["--grpc-port=1"], "which is that of no service: give it FileDescriptorName="),
        pytest.param(
            "http,http",
            [],
            "correct the .socket unit for http_port: there are two",
            marks=pytest.mark.long(
                "system/operations/test_socket_activation.py::test_a_socket_that_nobody_would_serve_is_an_error"
            ),
        ),
        pytest.param(
            "http,grpc",
            ["--allow-grpc=false"],
            "for grpc_port: the service is turned off",
            marks=pytest.mark.long(
                "system/operations/test_socket_activation.py::test_a_socket_that_nobody_would_serve_is_an_error"
            ),
        ),
    ],
)
def test_a_socket_that_nobody_would_serve_is_an_error(
    tmp_path: Path, names: str, options: list[str], text: str
) -> None:
    server = Server(tmp_path / "s", options=options)
    systemd = Systemd(server, names)
    try:
        systemd.start()
        assert 1 == server.wait(60)
        assert text in server.log_text()
    finally:
        systemd.close()
