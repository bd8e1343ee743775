"""A service manager that the test plays hears of a real server what systemd would."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server import Server
from tests.support.service_manager import Manager
from tests.support.waiting import eventually

pytestmark = pytest.mark.system


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path / "notify")
    yield manager
    manager.close()


def test_a_server_says_when_it_is_ready_that_it_lives_and_when_it_stops(
    tmp_path: Path, manager: Manager
) -> None:
    environment = manager.environment
    server = Server(tmp_path / "s", ["add_sub"], environment=environment, frontends=("grpc",))
    server.launch()
    try:
        before = manager.hear_until("READY=1")
        assert "WATCHDOG=1" not in before
        assert server.is_ready()
        assert 200 == server.status("/v2/models/add_sub/ready")
        with socket.create_connection(("127.0.0.1", server.grpc_port), timeout=5):
            pass
        assert "STATUS=1 of 1 model versions are ready" in before + manager.hear_until("WATCHDOG=1")

        # Who could speak for the service must be nobody else, above all not gunicorn, which tries.
        for role, pids in server.pids().items():
            for pid in pids:
                has_socket = b"NOTIFY_SOCKET=" in Path(f"/proc/{pid}/environ").read_bytes()
                assert (role == "supervisor") == has_socket, role

        assert 0 == server.stop()
        heard = manager.hear_until("STOPPING=1") + manager.hear_for(0.1)
        assert 1 == heard.count("STOPPING=1")
        assert "READY=1" not in heard
    finally:
        server.kill()


@pytest.mark.long(
    "system/replacements/test_directories.py::test_a_server_is_replaced_by_a_command",
    "supervisor/server_processes/test_replay.py::test_the_server_before_names_the_next_one_and_falls_silent",
)
def test_a_reload_of_the_service_replaces_the_server(tmp_path: Path, manager: Manager) -> None:
    here = {"RUNTIME_DIRECTORY": str(tmp_path / "run"), "INVOCATION_ID": "ab12"}
    environment = here | manager.environment
    server = Server(tmp_path / "s", ["add_sub"], environment=environment, frontends=())
    command = [sys.executable, "-m", "zmqtriton.ctl.main", "replace", "-o", "json"]
    outside = {name: os.environ[name] for name in os.environ if name != "INVOCATION_ID"}
    outside["RUNTIME_DIRECTORY"] = here["RUNTIME_DIRECTORY"]

    def run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    server.launch()
    try:
        manager.hear_until("READY=1")
        refused = run(outside)
        assert 1 == refused.returncode
        assert "systemd runs this server: `systemctl" in refused.stderr

        done = run(outside | here, "--", *server.command[3:])
        assert 0 == done.returncode, done.stderr
        pid = json.loads(done.stdout)["pid"]
        heard = manager.hear_until(f"MAINPID={pid}")
        assert not {"STOPPING=1", "READY=1"} & {*heard}
        assert not {"STOPPING=1"} & {*manager.hear_until("READY=1")}
        assert 0 == server.wait(60)
        manager.hear_until("WATCHDOG=1")
        os.kill(pid, signal.SIGTERM)
        manager.hear_until("STOPPING=1")
        eventually(lambda: not (tmp_path / "run").exists(), 60, "it has ended")
    finally:
        server.kill()
