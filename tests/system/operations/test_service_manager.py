"""A service manager that the test plays hears of a real server what systemd would."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

#: Systemd would kill after this; the server speaks three times as often.
WATCHDOG_S = 0.6


class Manager:
    """The receiving end of a notify socket.

    It reads all the time, as the kernel keeps only a few messages for it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(0.1)
        self._messages: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        self._is_over = threading.Event()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        while not self._is_over.is_set():
            with suppress(TimeoutError):
                self._messages.put(self._socket.recv(4096).decode().splitlines())

    @property
    def environment(self) -> dict[str, str]:
        return {"NOTIFY_SOCKET": str(self.path), "WATCHDOG_USEC": str(int(WATCHDOG_S * 1e6))}

    def receive(self, within_s: float) -> list[str]:
        """The lines of the next message; none if there is none in that time."""
        try:
            return self._messages.get(timeout=max(0.001, within_s))
        except queue.Empty:
            return []

    def hear_until(self, line: str, within_s: float = 30.0) -> list[str]:
        """All lines up to that one, which must come."""
        heard: list[str] = []
        deadline = time.monotonic() + within_s
        while line not in heard:
            assert time.monotonic() < deadline, f"no {line} in {heard}"
            heard += self.receive(deadline - time.monotonic())
        return heard

    def hear_for(self, seconds: float) -> list[str]:
        deadline = time.monotonic() + seconds
        heard: list[str] = []
        while time.monotonic() < deadline:
            heard += self.receive(deadline - time.monotonic())
        return heard

    def close(self) -> None:
        self._is_over.set()
        self._reading.join()
        self._socket.close()


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
