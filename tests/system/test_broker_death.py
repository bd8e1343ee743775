"""The broker and the frontends die under load, and are replaced."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.faults import broker_death, frontend_death
from tests.faults.load import Load
from tests.server import Server
from tests.waiting import eventually

pytestmark = pytest.mark.system


def start(tmp_path: Path) -> Server:
    server = Server(tmp_path / "s", models=["journal"])
    broker_death.use_instances(server)
    return server


def test_a_killed_broker_costs_nothing_that_was_not_being_executed(tmp_path: Path) -> None:
    with start(tmp_path) as server:
        stubs = server.stubs("journal")
        with broker_death.mixed_load(server) as loads:
            for _ in range(3):
                broker_death.die(server, loads)
                time.sleep(0.3)
        broker_death.check(server, broker_death.outcomes(loads), stubs, kills=3)
        assert "has died: killed by SIGKILL" in server.log_text()


def test_a_stopped_broker_is_replaced(tmp_path: Path) -> None:
    with start(tmp_path) as server:
        stubs = server.stubs("journal")
        with broker_death.mixed_load(server) as loads:
            death = broker_death.die(server, loads, signal.SIGSTOP)
        assert death.back_ms < 10_000
        broker_death.check(server, broker_death.outcomes(loads), stubs, kills=1)


def test_a_stub_that_dies_with_the_broker_is_not_asked_again_for_what_it_had(
    tmp_path: Path,
) -> None:
    with start(tmp_path) as server:
        with broker_death.mixed_load(server) as loads:
            time.sleep(0.5)
            [broker] = server.pids()["broker"]
            stub = server.stubs("journal")[0]
            killed_ns = time.monotonic_ns()
            for pid in (stub, broker):
                os.kill(pid, signal.SIGKILL)

            def back() -> bool:
                answers = broker_death.outcomes(loads)
                return any(o.sent_ns > killed_ns and o.is_right for o in answers)

            eventually(back, 30, "answers")
            eventually(lambda: len(server.stubs("journal")) == 2, 30, "the stub")
            time.sleep(0.5)
        broker_death.check_once(server, broker_death.outcomes(loads))


def test_brokers_that_die_at_once_end_the_server(tmp_path: Path) -> None:
    server = start(tmp_path).start()
    deadline = time.monotonic() + 60

    while server.returncode is None and time.monotonic() < deadline:
        for broker in server.pids().get("broker", []):
            os.kill(broker, signal.SIGKILL)
        time.sleep(0.02)

    assert server.returncode == 1
    assert "no broker lives for long" in server.log_text()


@pytest.mark.parametrize("choose", ["http_process", "arbiter"])
def test_a_killed_http_process_costs_its_connections(tmp_path: Path, choose: str) -> None:
    with start(tmp_path) as server:
        clients = 4
        with Load(
            server.http_port, clients=clients, milliseconds=frontend_death.EXECUTION_MS
        ) as load:
            for _ in range(2):
                frontend_death.die_http(server, load, getattr(frontend_death, choose))
        # While nobody listens each new connection is refused, too.
        most = 2 * clients if choose == "http_process" else len(load.outcomes)
        frontend_death.check(server, load.outcomes, most)


def test_a_killed_grpc_process_is_replaced(tmp_path: Path) -> None:
    with start(tmp_path) as server:
        for _ in range(2):
            frontend_death.die_grpc(server)
