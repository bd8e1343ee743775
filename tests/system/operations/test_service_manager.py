"""A service manager that the test plays hears of a real server what systemd would."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.support.server import Server
from tests.support.service_manager import Manager

pytestmark = pytest.mark.system


def test_a_server_says_when_it_is_ready_that_it_lives_and_when_it_stops(tmp_path: Path) -> None:
    manager = Manager(tmp_path / "notify")
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
        manager.close()
