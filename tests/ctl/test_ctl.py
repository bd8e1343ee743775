"""The commands against a server that a test plays."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from zmqtriton.ctl.client import NoServer, connect
from zmqtriton.ctl.main import cli
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_floor.wire import Answer, Call, Seen

STATUS = {
    "processes": [
        {"role": "supervisor", "pid": 7, "started_s": 1.0, "state": "running"},
        {
            "role": "stub",
            "pid": 9,
            "started_s": 2.0,
            "model": "m",
            "version": 1,
            "instance": "m_0_0",
            "state": "READY",
            "restarts": 2,
            "last_reason": "killed by [bold]SIGKILL",
        },
    ]
}


class FakeServer:
    """Answers one connection after another with what `answers` says for the verb."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.answers: dict[str, Any] = {"status": STATUS, "index": [], "load": None, "unload": None}
        self.asked: list[tuple[str, Any]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(str(directory / "ctl"))
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            line = Lifeline(connection)
            while not line.ended:
                line.wait(20)
                for message, _ in line.receive():
                    self._answer(line, message)
            line.close()

    def _answer(self, line: Lifeline, call: Call) -> None:
        self.asked.append((call.verb, json.loads(call.arguments)))
        answer = self.answers[call.verb]
        line.send(Seen(1))  # nothing that was asked for
        if answer == "hang up":
            line.close()
        elif isinstance(answer, Exception):
            line.send(Answer(call.id, InvalidArgument.number, str(answer), "null"))
        else:
            line.send(Answer(call.id, 0, "", json.dumps(answer)))

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(20)


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="zt", dir="/tmp") as name:
        monkeypatch.setattr(tempfile, "tempdir", name)
        monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
        monkeypatch.setenv("COLUMNS", "200")
        yield Path(name)


@pytest.fixture
def server(temporary: Path) -> Iterator[FakeServer]:
    server = FakeServer(temporary / "zmqtriton-1")
    yield server
    server.close()


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


def test_the_status_is_a_table_or_json(server: FakeServer) -> None:
    table, document = run("status"), run("status", "--json")

    assert table.exit_code == 0
    assert "stub m:1 m_0_0" in table.output
    # A reason is a model's text, and not ours to format.
    assert "killed by [bold]SIGKILL" in table.output
    assert json.loads(document.output) == STATUS


def test_models_are_listed(server: FakeServer) -> None:
    server.answers["index"] = [
        {"name": "m", "version": "1", "state": "READY"},
        {"name": "n"},
    ]

    listed = run("models", "--ready")

    assert listed.exit_code == 0
    assert ["Model", "Version", "State", "Reason"] == listed.output.splitlines()[0].split()
    assert ["m", "1", "READY"] == listed.output.splitlines()[1].split()
    assert [("index", {"ready": True})] == server.asked


def test_a_load_and_an_unload_name_the_model(server: FakeServer) -> None:
    assert run("load", "m").output == "loaded m\n"
    assert run("unload", "m", "--dependents").output == "unloaded m\n"

    assert [
        ("load", {"model": "m", "parameters": {}}),
        ("unload", {"model": "m", "unload_dependents": True}),
    ] == server.asked


def test_a_refusal_is_status_1(server: FakeServer) -> None:
    server.answers["load"] = InvalidArgument("load failed for model 'm'")

    refused = run("load", "m")

    assert refused.exit_code == 1
    assert refused.stderr == "error: load failed for model 'm'\n"


def test_no_server_is_status_2(temporary: Path) -> None:
    found = run("status")

    assert found.exit_code == 2
    assert f"no running server found in {temporary}/zmqtriton-*" in found.stderr


def test_a_server_that_ends_meanwhile_is_status_2(server: FakeServer) -> None:
    server.answers["status"] = "hang up"

    found = run("status")

    assert found.exit_code == 2
    assert "has ended the conversation" in found.stderr


def test_an_unknown_command_is_status_2() -> None:
    assert run("dance").exit_code == 2


def test_the_newest_server_that_lives_is_asked(temporary: Path) -> None:
    servers = [FakeServer(temporary / f"zmqtriton-{name}") for name in ("old", "new")]
    os.utime(temporary / "zmqtriton-old", (100, 100))
    dead = temporary / "zmqtriton-dead"
    dead.mkdir()

    with connect() as client:
        assert client.directory == temporary / "zmqtriton-new"

    for server in servers:
        server.close()


def test_a_server_is_named_by_option_or_environment(
    temporary: Path, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = temporary / "zmqtriton-1"
    assert run("--runtime-directory", str(directory), "status").exit_code == 0
    assert run("--runtime-directory", "/nowhere", "status").exit_code == 2

    monkeypatch.setenv("RUNTIME_DIRECTORY", "/nowhere")
    with pytest.raises(NoServer, match="/nowhere"):
        connect()
