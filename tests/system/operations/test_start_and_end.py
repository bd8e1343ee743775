"""When a server opens, and how it ends: by itself, in a terminal, and for a service manager."""

from __future__ import annotations

import os
import pty
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.load import Load
from tests.support.journal import UNTIL_RELEASED, read_journal, release_execution
from tests.support.server import Server
from tests.support.service_manager import Manager
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

#: Waits in its initialize until the test has looked.
_WAITING = """
import json, pathlib, time

class TritonPythonModel:
    def initialize(self, args):
        folder = json.loads(args["model_config"])["parameters"]["FOLDER"]["string_value"]
        (pathlib.Path(folder) / "begun").touch()
        while not (pathlib.Path(folder) / "go").exists():
            time.sleep(0.01)

    def execute(self, requests): return []
"""


def _waiting_server(directory: Path, *options: str) -> Server:
    server = Server(directory, options=options, frontends=())
    server.write_model(
        "slow",
        'backend: "python"\n'
        'input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
        'output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
        f'parameters {{ key: "FOLDER" value {{ string_value: "{server.scratch}" }} }}\n',
        _WAITING,
    )
    return server


@pytest.mark.row("F06")
def test_without_a_repository_there_is_no_server() -> None:
    command = [sys.executable, "-m", "zmqtriton", "--http-port=0"]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert 1 == ended.returncode
    assert "--model-repository must be specified" in ended.stderr


@pytest.mark.row("F18", "F42")
def test_with_early_liveness_a_slow_model_holds_up_no_other(tmp_path: Path) -> None:
    server = _waiting_server(tmp_path / "s", "--early-liveness")
    server.add_model("add_sub")
    server.launch()
    try:
        eventually(lambda: server.status("/v2/health/live") == 200, 60, "live")
        eventually(lambda: server.status("/v2/models/add_sub/ready") == 200, 60, "it serves")
        assert 400 == server.status("/v2/models/slow/ready")
        assert 400 == server.status("/v2/health/ready")

        (server.scratch / "go").touch()
        eventually(server.is_ready, 60, server.log_text())
    finally:
        (server.scratch / "go").touch()
        assert 0 == server.stop()


def is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except ConnectionRefusedError:
        return True
    return False


@pytest.mark.row("F17")
def test_the_end_waits_for_requests_and_names_those_who_have_them(tmp_path: Path) -> None:
    server = Server(tmp_path / "s", models=["journal"], frontends=("grpc",)).start()
    with Load(server.http_port, clients=1, milliseconds=UNTIL_RELEASED) as load:
        (begun,) = eventually(lambda: read_journal(server.journal), 30, "an execution")

        for pid in (*server.pids()["broker"], server.pid):  # as if the whole group gets it
            os.kill(pid, signal.SIGTERM)
        eventually(lambda: "Timeout 29: Found" in server.log_text(), 30, "a second of waiting")
        # Who comes now is not kept waiting until the end.
        ports = (server.http_port, server.grpc_port)
        eventually(lambda: all(map(is_refused, ports)), 30, "the ports are closed")
        release_execution(server.journal, begun.id)
        assert 0 == server.wait(60)

    assert load.answers[0].is_right
    log = server.log_text()
    lines = (
        "Waiting for in-flight requests to complete.",
        "Timeout 30: Found 1 model versions that have in-flight inferences",
        "Model 'journal' (version 1) has 1 in-flight inferences",
        "Timeout 29: Found 1 model versions that have in-flight inferences",
        "All models are stopped, unloading models",
        "live models and 0 in-flight non-inference requests",
        "successfully unloaded 'journal' version 1",
    )
    places = [log.find(line) for line in lines]
    assert -1 not in places, lines[places.index(-1)]
    assert sorted(places) == places
    assert "broker has died" not in log


@pytest.mark.row("F17", "--exit-timeout-secs")
@pytest.mark.parametrize(
    "signals",
    [
        1,
        pytest.param(
            2,
            marks=pytest.mark.long(
                "system/operations/test_start_and_end.py::test_the_end_is_forced_by_time_or_by_a_second_signal",
                "supervisor/server_processes/test_shutdown.py::test_a_second_signal_ends_everything_at_once",
            ),
        ),
    ],
)
def test_the_end_is_forced_by_time_or_by_a_second_signal(tmp_path: Path, signals: int) -> None:
    limit = 1 if signals == 1 else 60
    options = [f"--exit-timeout-secs={limit}"]
    server = Server(tmp_path / "s", models=["journal"], options=options, frontends=()).start()
    with Load(server.http_port, clients=1, milliseconds=600_000):
        eventually(lambda: read_journal(server.journal), 30, "an execution")
        began_s = time.monotonic()
        for _ in range(signals):
            os.kill(server.pid, signal.SIGINT)
            eventually(lambda: "Waiting for in-flight" in server.log_text(), 30, "the stop")

        assert 1 == server.wait(50)

    assert (signals == 2) == ("The second signal ends the server at once" in server.log_text())
    assert (signals == 1) == ("Exit timeout expired. Exiting immediately." in server.log_text())
    assert time.monotonic() - began_s < 50


@pytest.mark.row("L09")
@pytest.mark.parametrize(
    ("content", "mode", "text"),
    [
        ("a b c\n", 0o600, "line 1: expecting NAME sha256:HASH"),
        pytest.param(
            "",
            0o602,
            "others may write it, which would let them in",
            marks=pytest.mark.long(
                "system/operations/test_start_and_end.py::test_a_server_does_not_start_with_a_file_that_it_cannot_use",
                "floor/access/test_token_file.py::test_a_file_that_others_may_write_is_refused",
            ),
        ),
        pytest.param(
            None,
            0,
            "No such file or directory",
            marks=pytest.mark.long(
                "system/operations/test_start_and_end.py::test_a_server_does_not_start_with_a_file_that_it_cannot_use"
            ),
        ),
    ],
)
def test_a_server_does_not_start_with_a_file_that_it_cannot_use(
    tmp_path: Path, content: str | None, mode: int, text: str
) -> None:
    path = tmp_path / "tokens"
    if content is not None:
        path.write_text(content)
        path.chmod(mode)
    server = Server(tmp_path / "s", options=[f"--tokens={path}"], frontends=())

    server.launch()
    eventually(lambda: server.returncode is not None, 60)

    assert 1 == server.returncode
    assert f"error: --tokens={path}: {text}" in server.log_text()


# ---------------------------------------------------------------------------------------- terminals
# A server in the foreground of a terminal ends when the terminal is closed.


#: A shell's part: makes stdin the terminal of a session, and runs the arguments in its foreground.
_IN_TERMINAL = """
import fcntl, os, signal, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
# the tests themselves may run under nohup
signal.signal(signal.SIGHUP, signal.SIG_IGN if sys.argv[1] == "nohup" else signal.SIG_DFL)
os.execvp(sys.argv[2], sys.argv[2:])
"""


def _in_terminal(server: Server, how: str) -> tuple[int, subprocess.Popen[bytes]]:
    """Start the server in a terminal; return the terminal's other end, and the process."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", _IN_TERMINAL, how, *server.command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    return ours, process


def test_a_server_in_the_foreground_ends_with_its_terminal(tmp_path: Path) -> None:
    server = Server(tmp_path / "s", ["add_sub"], frontends=())
    terminal, process = _in_terminal(server, "foreground")
    try:
        eventually(server.is_ready, 60, "it serves")
        os.kill(process.pid, signal.SIGHUP)  # the terminal is there: nothing happens
        assert server.is_ready()

        os.close(terminal)
        os.kill(process.pid, signal.SIGHUP)  # a shell's, beside the kernel's

        eventually(lambda: process.poll() is not None, 60, "it has ended")
        assert 0 == process.returncode
    finally:
        process.kill()
        process.wait()


@pytest.mark.long(
    "system/operations/test_start_and_end.py::test_a_server_in_the_foreground_ends_with_its_terminal",
    "system/operations/test_log_file.py::test_after_sighup_every_process_writes_to_a_new_file",
)
def test_a_server_under_nohup_goes_on(tmp_path: Path) -> None:
    server = Server(tmp_path / "s", ["add_sub"], frontends=())
    terminal, process = _in_terminal(server, "nohup")
    try:
        eventually(server.is_ready, 60, "it serves")
        os.close(terminal)
        assert server.is_ready()
    finally:
        process.terminate()
        assert 0 == process.wait(60)


# ---------------------------------------------------------------------------------- service manager
# A service manager that the test plays hears of a real server what systemd would.


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
