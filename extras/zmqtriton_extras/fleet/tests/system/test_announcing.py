"""Real servers that are announced, to a file and to a receiver that is not always there."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton.control_client import Client, ServerSelector
from zmqtriton_extras.fleet.tests.announcing.receiver import Receiver

pytestmark = pytest.mark.system

MODEL = "add_sub"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "announced.json"


@pytest.fixture
def server(tmp_path: Path, file: Path, receiver: Receiver) -> Iterator[Server]:
    (tmp_path / "token").write_text("secret")
    options = [
        "--model-control-mode=explicit",
        f"--load-model={MODEL}",
        f"--announce={file}",
        f"--announce={receiver.url}",
        "--announce-interval-secs=1",
        f"--announce-token-file={tmp_path / 'token'}",
    ]
    server = Server(tmp_path / "s", [MODEL], options=options)
    # the file tells of another run until this one has something to say
    file.write_text('{"state": "ready", "models": []}')
    with server:
        yield server


def read(file: Path) -> dict[str, Any]:
    """The announcement that a reader finds, each time a whole one."""
    return json.loads(file.read_text())


def operate(server: Server) -> Client:
    return ServerSelector(name=f":{server.http_port}").connect()


def test_each_change_of_a_server_is_announced(
    server: Server, file: Path, receiver: Receiver
) -> None:
    eventually(lambda: read(file).get("id") and read(file)["state"] == "ready", 60)
    announcement = read(file)
    assert server.pid == announcement["pid"]
    assert {
        "http": f"127.0.0.1:{server.http_port}",
        "grpc": server.grpc_address,
        "metrics": f"127.0.0.1:{server.metrics_port}",
    } == announcement["addresses"]
    [entry] = announcement["models"]
    assert tuple(entry[key] for key in ("name", "version", "state", "ready", "instances")) == (
        MODEL,
        "1",
        "READY",
        True,
        1,
    )

    with operate(server) as operator:
        operator.call("drain", {"model": "", "wait": False})
        eventually(lambda: read(file)["state"] == "draining", 60)
        assert [entry["ready"] for entry in read(file)["models"]] == [False]
        operator.call("undrain", {"model": ""})
        eventually(lambda: read(file)["state"] == "ready", 60)

        # whoever cannot be reached holds up nobody, and hears the last state when it is back
        receiver.close()
        assert server.control_model("unload", MODEL) == ""
        eventually(lambda: not read(file)["models"][0]["ready"], 60)
        # why it was not reached depends on how far an attempt was when it closed
        eventually(lambda: f"to {receiver.url}, and tries again: " in server.log_text(), 60)
        receiver.open()
        eventually(lambda: receiver.last == {**read(file), "at_s": receiver.last["at_s"]}, 60)

    before_s = read(file)["at_s"]
    eventually(lambda: read(file)["at_s"] > before_s, 60, "a heartbeat")
    (dead,) = server.pids()["announcer"]
    os.kill(dead, signal.SIGKILL)
    eventually(lambda: server.pids().get("announcer", [dead]) != [dead], 60, "another one")
    before_s = read(file)["at_s"]
    eventually(lambda: read(file)["at_s"] > before_s, 60, "it goes on")

    server.stop()

    eventually(lambda: read(file)["state"] == "ended", 60)
    assert "reason" not in read(file)
    eventually(lambda: receiver.last["state"] == "ended", 60)
    assert {"Bearer secret"} == set(receiver.authorizations)
    states = {"starting", "ready", "draining", "unready", "stopping", "ended"}
    assert {each["state"] for each in receiver.received} <= states


@pytest.mark.smoke
def test_a_server_that_is_killed_is_announced_as_ended(server: Server, file: Path) -> None:
    eventually(lambda: read(file).get("id") and read(file)["state"] == "ready", 60)

    server.kill()

    eventually(lambda: read(file)["state"] == "ended", 60)
    assert read(file)["reason"] == "the server was killed"
    assert read(file)["models"] == []
