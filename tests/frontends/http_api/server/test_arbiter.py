"""Real gunicorn processes between a supervisor and a broker that the test plays."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.frontends import fake_server
from tests.frontends.fake_server import FakeServer
from tests.support.waiting import eventually
from zmqtriton_floor.wire import ResponseBody

pytestmark = pytest.mark.system

BODY = json.dumps(
    {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [2], "data": [1.5, 2.5]}]}
).encode()
INFER = "/v2/models/identity/infer"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeServer]:
    with FakeServer(tmp_path, "zmqtriton_frontends.http_api") as running:
        running.open()
        yield running


@contextlib.contextmanager
def connection(server: FakeServer) -> Iterator[http.client.HTTPConnection]:
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    client.connect()
    try:
        yield client
    finally:
        client.close()


def answer(client: http.client.HTTPConnection) -> tuple[int, Any]:
    response = client.getresponse()
    data = response.read()
    return response.status, json.loads(data) if data else None


def ask(client: http.client.HTTPConnection) -> tuple[int, Any]:
    client.request("POST", INFER, BODY)
    return answer(client)


def plug(server: FakeServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=20)


def start_held(server: FakeServer, client: http.client.HTTPConnection) -> None:
    server.respond = fake_server.hold_request
    before = len(server.requests)
    client.request("POST", INFER, BODY)
    eventually(lambda: len(server.requests) > before, 30.0, "the request")


def end_of(server: FakeServer, within_s: float) -> int:
    return server.process.wait(within_s)


# -------------------------------------------------------------------- serving


def test_nothing_is_accepted_before_the_server_opens(tmp_path: Path) -> None:
    with FakeServer(tmp_path, "zmqtriton_frontends.http_api") as server:
        with pytest.raises(ConnectionRefusedError):
            plug(server)

        server.open()

        with connection(server) as client:
            assert ask(client)[0] == 200


def test_requests_on_one_connection_are_answered_and_say_little_of_the_server(
    server: FakeServer,
) -> None:
    with connection(server) as client:
        for _ in range(3):
            client.request("POST", INFER, BODY)
            response = client.getresponse()
            assert json.loads(response.read())["outputs"][0]["data"] == [1.5, 2.5]
            assert response.getheader("Server") is None
            assert response.getheader("Connection") is None
    assert [s.address for m in server.opened for s in m.services] == [f"127.0.0.1:{server.port}"]


# --------------------------------------------------------------------- the end


def test_a_crowd_that_comes_at_once_can_connect(server: FakeServer) -> None:
    [process] = server.worker_pids
    os.kill(process, signal.SIGSTOP)
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(600):
                # What the kernel has no room for it tells nobody, and tries again after a second.
                connection = socket.create_connection(("127.0.0.1", server.port), timeout=0.9)
                stack.enter_context(connection)
    finally:
        os.kill(process, signal.SIGCONT)


def test_idle_and_half_open_connections_do_not_delay_the_end(server: FakeServer) -> None:
    with connection(server) as idle, plug(server) as silent, plug(server) as half:
        ask(idle)
        half.sendall(b"GET /v2 HT")

        server.stop()

        # It gives requests thirty seconds.
        assert end_of(server, 25.0) == 0
        assert silent.recv(1) == b""


def test_a_request_that_is_on_its_way_at_the_stop_is_answered(server: FakeServer) -> None:
    with connection(server) as busy, connection(server) as other:
        ask(other)
        start_held(server, busy)

        server.stop()
        eventually(lambda: is_refused(server), 30.0, "the listener closed")
        start_held(server, other)

        server.answer_held(2, ResponseBody({}, []))
        assert answer(other)[0] == 200
        server.answer_held(1, ResponseBody({}, []))
        assert answer(busy)[0] == 200
        assert end_of(server, 30.0) == 0


def is_refused(server: FakeServer) -> bool:
    try:
        plug(server).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        pass  # it was in the queue of the listener that closed
    return False


def test_sigterm_alone_ends_everything(server: FakeServer) -> None:
    server.process.send_signal(signal.SIGTERM)

    assert end_of(server, 30.0) == 0


def test_a_request_that_takes_too_long_does_not_keep_the_server(tmp_path: Path) -> None:
    with FakeServer(tmp_path, "zmqtriton_frontends.http_api", exit_timeout_secs=1) as server:
        server.open()
        with connection(server) as busy:
            start_held(server, busy)

            server.stop()

            assert end_of(server, 30.0) == 0


# ---------------------------------------------------------------------- deaths


def test_processes_die_with_the_arbiter(server: FakeServer) -> None:
    (pid,) = server.worker_pids
    child = psutil.Process(pid)

    server.process.kill()

    child.wait(30.0)


def test_a_process_that_dies_is_replaced_and_has_a_lifeline_of_its_own(
    server: FakeServer,
) -> None:
    os.kill(server.worker_pids[0], signal.SIGKILL)

    eventually(lambda: len(server.worker_pids) == 2, 30.0, "a second process")

    eventually(lambda: len(server.opened) == 2, 30.0, "it listening")
    with connection(server) as client:
        assert ask(client)[0] == 200


def test_nothing_stays_when_the_supervisor_dies_before_the_server_opened(tmp_path: Path) -> None:
    with FakeServer(tmp_path, "zmqtriton_frontends.http_api") as server:
        server.close_lifeline()

        assert end_of(server, 30.0) == 0
