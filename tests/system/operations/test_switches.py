"""Each two switches of a server let it open, and all of them together do.

Whoever waits for an open server waits by one of six ways: systemd for READY=1, `wait`, `status`,
`replace`, zmqtriton.Server() and `zmqtriton run`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import zmqtriton
from tests.support.server import MODELS_DIRECTORY, Server, free_ports
from tests.support.service_manager import Manager
from tests.support.waiting import eventually
from tests.system.operations import kinds
from tests.system.operations.switches import (
    ENVIRONMENT,
    REMOVALS,
    servers_of_pairs,
    switches,
    words_of_all,
)
from zmqtriton import addons
from zmqtriton.control_client import ServerSelector

pytestmark = pytest.mark.system

SWITCHES = sorted(switches())
#: All that remove nothing.
ADDING = [name for name in SWITCHES if name not in REMOVALS]
#: Seconds in which a server opens on a busy machine.
WITHIN_S = 240.0


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ENVIRONMENT.items():
        monkeypatch.setenv(*variable)


@contextmanager
def opened(directory: Path, words: Sequence[str]) -> Iterator[Server]:
    """Start a server with these words; pass it when it has reported READY=1."""
    manager = Manager(directory / "notify")
    try:
        with stopping(
            server_of(
                directory,
                words,
                {**manager.environment, "RUNTIME_DIRECTORY": str(directory / "run")},
            )
        ) as server:
            server.launch()
            heard: list[str] = []

            def has_ended_or_opened() -> bool:
                heard.extend(manager.receive(0.1))
                return "READY=1" in heard or server.returncode is not None

            eventually(has_ended_or_opened, WITHIN_S, f"READY=1 after {heard}")
            assert server.returncode is None, server.log_text()[-3000:]
            yield server
    finally:
        manager.close()


def server_of(directory: Path, words: Sequence[str], environment: dict[str, str]) -> Server:
    """Return a server whose usual frontends are those that the words leave it."""
    own = {"grpc", "metrics"} - {n for n in ("grpc", "metrics") if f"--allow-{n}=false" in words}
    server = Server(
        directory / "s", kinds.MODELS, options=words, environment=environment, frontends=own
    )
    kinds.add_models(server)
    return server


@contextmanager
def stopping(server: Server) -> Iterator[Server]:
    """Stop the server, or kill it if the test has failed."""
    try:
        yield server
        assert 0 == server.stop()
    finally:
        server.kill()


def check_waiters(server: Server, pid: int = 0) -> None:
    """Check that `wait` returns, and that `status` names nothing that is not there."""
    assert "the server is ready" in ctl(server, "wait", "--timeout=60", pid=pid)
    status = json.loads(ctl(server, "status", "-o", "json", pid=pid))
    assert [] == status["process_troubles"]
    for place in status["server"]["addresses"].values():
        assert accepts(place), place


def ctl(server: Server, *words: str, pid: int = 0) -> str:
    """Return the output of a command of zmqtriton-ctl, which must succeed.

    pid is the server that has taken this one's place.
    """
    command = [sys.executable, "-m", "zmqtriton.ctl.main", f"--server={pid or server.pid}", *words]
    outside = {name: value for name, value in os.environ.items() if name != "INVOCATION_ID"}
    outside["RUNTIME_DIRECTORY"] = str(server.directory.parent / "run")
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=outside
    )
    assert 0 == done.returncode, (done.stderr, server.log_text()[-3000:])
    return done.stdout


def accepts(place: str) -> bool:
    """Return True if a connection to this address, or to this path, is accepted."""
    family = socket.AF_UNIX if place.startswith("/") else socket.AF_INET
    host, _, port = place.rpartition(":")
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(place if family == socket.AF_UNIX else (host, int(port))) == 0


def check_requests(server: Server, words: Sequence[str], pid: int = 0) -> None:
    """Check that a request of each kind succeeds, and that no process has died of one."""
    before = restarts(server, pid)
    for check in kinds.kinds_of(words).values():
        check(server)
    assert before == restarts(server, pid)


def restarts(server: Server, pid: int) -> list[tuple[str, int]]:
    """Return the roles that were replaced, and how often: a busy machine starts some too late."""
    return sorted(
        (row["role"], row["restarts"])
        for row in json.loads(ctl(server, "status", "-o", "json", pid=pid))["processes"]
        if row.get("restarts")
    )


def check_replace(server: Server, words: Sequence[str]) -> None:
    """Check that `replace` ends with another server, which is asked in the place of this one."""
    pid = json.loads(ctl(server, "replace", "-o", "json"))["pid"]
    try:
        assert 0 == server.wait(60), server.log_text()[-3000:]
        with ServerSelector(str(server.directory.parent / "run")).connect() as client:
            assert pid == client.identity.pid
            assert client.call("is_open", timeout_s=60)
        check_waiters(server, pid)
        check_requests(server, words, pid)
    finally:
        os.kill(pid, signal.SIGTERM)
    run = server.directory.parent / "run"
    eventually(lambda: not run.exists(), 60, "the next server has ended")


def check_embedded(directory: Path, words: Sequence[str]) -> None:
    """Check that zmqtriton.Server() starts with these words, and answers."""
    options: dict[str, Any] = {"log_info": False, **ports()}
    for word in words:
        name, _, value = word.removeprefix("--").partition("=")
        options.setdefault(name.replace("-", "_"), []).append(value or True)
    with zmqtriton.Server(
        Server(directory / "embedded", ["add_sub"]).repository, **options
    ) as server:
        assert server.ready


def ports() -> dict[str, Any]:
    http, grpc, metrics = free_ports(3)
    return {
        "http_address": "127.0.0.1",
        "http_port": http,
        "grpc_address": "127.0.0.1",
        "grpc_port": grpc,
        "metrics_port": metrics,
    }


def check_run(directory: Path, words: Sequence[str]) -> None:
    """Check that `zmqtriton run` prints requests to try, or why it has none."""
    own = [f"--{name.replace('_', '-')}={value}" for name, value in ports().items()]
    model = [sys.executable, "-m", "zmqtriton", "run", str(MODELS_DIRECTORY / "add_sub")]
    log, printed = directory / "run.log", directory / "run.txt"
    with log.open("wb") as errors, printed.open("wb") as output:
        process = subprocess.Popen(
            [*model, *own, *words], stdout=output, stderr=errors, stdin=subprocess.DEVNULL
        )
        try:
            eventually(
                lambda: "add_sub is served" in printed.read_text() or process.poll() is not None,
                WITHIN_S,
                log.read_text()[-3000:],
            )
            process.terminate()
            assert 0 == process.wait(60), log.read_text()[-3000:]
        finally:
            process.kill()
            process.wait()
    has_http = "--allow-http=false" not in words
    assert (
        "zmqtriton-ctl infer" if has_http else "add_sub is served, but not over HTTP"
    ) in printed.read_text()


def test_each_process_and_each_service_of_an_add_on_has_a_switch() -> None:
    """One that has a value of its own kind needs a sample in switches.py."""
    services = {service.on.replace("_", "-") for service in addons.services().values()}
    assert set() == services - {*SWITCHES}


def test_a_server_opens_with_all_switches_for_whoever_waits(tmp_path: Path) -> None:
    words = words_of_all(ADDING, tmp_path)
    with opened(tmp_path, words) as server:
        check_waiters(server)
        check_requests(server, words)


def test_each_two_switches_are_together_in_a_server_of_the_pairs() -> None:
    servers = list(map(set, servers_of_pairs().values()))

    for one, two in combinations(SWITCHES, 2):
        assert any({one, two} <= names for names in servers), (one, two)


@pytest.mark.long(
    "system/operations/test_switches.py::test_a_server_opens_with_all_switches_for_whoever_waits"
)
@pytest.mark.parametrize("server_name", [*servers_of_pairs(), "all"])
def test_pairs_of_switches_serve_each_kind_of_request_to_whoever_waits(
    tmp_path: Path, server_name: str
) -> None:
    names = servers_of_pairs().get(server_name, ADDING)
    words = words_of_all(names, tmp_path)
    with opened(tmp_path, words) as server:
        check_waiters(server)
        check_requests(server, words)
        check_replace(server, words)
    again = tmp_path / "again"
    again.mkdir()
    words = words_of_all(names, again)
    check_run(again, words)
    check_embedded(again, words)
