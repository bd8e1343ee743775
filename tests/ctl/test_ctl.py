"""The commands against a server that a test plays."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import tempfile
import threading
import time
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
        {"role": "grpc", "pid": 0, "started_s": 0.0, "restarts": 0, "last_reason": ""},
    ],
    "malformed": 0,
    "counts": [
        {
            "model": "m",
            "version": 1,
            "succeeded": 11,
            "failed": 22,
            "pending": 33,
            "executions": 44,
        }
    ],
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
        monkeypatch.setattr("zmqtriton.ctl.client._SERVICE", Path(name) / "service")
        yield Path(name)


@pytest.fixture
def server(temporary: Path) -> Iterator[FakeServer]:
    server = FakeServer(temporary / "zmqtriton-1")
    yield server
    server.close()


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


def words_of(result: Result) -> list[list[str]]:
    return [line.split() for line in result.stdout.splitlines()]


def test_the_status_is_a_table_of_processes_and_one_of_counts(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr(time, "time", lambda: 3602.5)

    table = run("status")

    assert table.exit_code == 0
    header, supervisor, stub, grpc, _, _, counts = words_of(table)
    columns = "Process Model Pid Started Up State Restarts Last reason".split()
    assert columns == header
    assert ["supervisor", "7", "1970-01-01", "00:00:01", "1h00m", "running"] == supervisor
    # A reason is a model's text, and not ours to format.
    reason = ["killed", "by", "[bold]SIGKILL"]
    started = ["1970-01-01", "00:00:02"]
    assert ["stub", "m_0_0", "m:1", "9", *started, "1h00m", "READY", "2", *reason] == stub
    assert ["grpc", "-", "-", "-", "0"] == grpc
    assert ["m:1", "11", "22", "33", "44"] == counts


def test_the_status_as_json_is_what_the_server_says_and_how_long_each_has_been_up(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 11.5)

    document = json.loads(run("status", "--json").output)

    assert [10.5, 9.5, None] == [process.pop("uptime_s") for process in document["processes"]]
    assert STATUS == document


def test_a_status_without_a_broker_says_so(server: FakeServer) -> None:
    server.answers["status"] = {**STATUS, "counts": None}

    table = run("status")

    assert table.exit_code == 0
    assert "the broker does not answer" in table.stderr


def a_line(number: int, text: str) -> dict[str, Any]:
    origin = {"pid": 9, "file": "m_0_0", "line": 3, "model": "m", "instance": "m_0_0"}
    return {"number": number, "time_s": 0.0, "level": "W", **origin, "text": text}


def test_logs_look_as_they_do_in_the_log(server: FakeServer) -> None:
    server.answers["logs"] = {"lines": [a_line(7, 'said "x"\n')], "last": 7, "lost": 0}

    shown, document = run("logs", "m", "--lines", "5"), run("logs", "--json")

    assert (shown.exit_code, shown.stderr) == (0, "")
    assert re.fullmatch(r'W\d{4} [\d:.]+ 9 m_0_0:3\] "said \\"x\\"\\n"\n', shown.stdout)
    assert a_line(7, 'said "x"\n') == json.loads(document.stdout)
    assert [
        ("logs", {"model": "m", "after": 0, "lines": 5}),
        ("logs", {"model": "", "after": 0, "lines": 100}),
    ] == server.asked


def test_followed_logs_go_on_from_the_last_line_until_the_server_ends(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 1:
            server.answers["logs"] = {"lines": [a_line(30, "second")], "last": 30, "lost": 22}
        else:
            server.answers["logs"] = "hang up"

    monkeypatch.setattr(time, "sleep", pause)
    server.answers["logs"] = {"lines": [a_line(7, "first")], "last": 7, "lost": 0}

    followed = run("logs", "--follow", "--json")

    assert ["first", "second"] == [
        json.loads(line)["text"] for line in followed.stdout.split("\n")[:2]
    ]
    assert [0, 7, 30] == [arguments["after"] for _, arguments in server.asked]
    assert "... 22 lines were lost" in followed.stderr
    assert followed.exit_code == 2


def test_following_ends_well_when_it_is_interrupted(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupt)
    server.answers["logs"] = {"lines": [], "last": 0, "lost": 0}

    assert run("logs", "-f").exit_code == 0


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


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("nothing", "there is none"),
        ("dead", "the server has ended"),
        ("closed", "it is another user's; ask as that user or as root"),
    ],
)
def test_no_server_says_what_was_found_instead(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, kind: str, reason: str
) -> None:
    directory = temporary / "zmqtriton-1"
    directory.mkdir()
    if kind == "dead":
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as end:
            end.bind(str(directory / "ctl"))
    if kind == "closed":

        class Refused(socket.socket):
            def connect(self, address: Any) -> None:
                raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(socket, "socket", Refused)

    found = run("status")

    assert found.exit_code == 2
    assert f"error: no running server found in {directory} ({reason})\n" == found.stderr


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
