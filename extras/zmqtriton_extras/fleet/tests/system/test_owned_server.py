"""A server that a process owns, as a replica of Ray Serve does: hung, dead and stopped in order."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.needs import ROOT
from tests.support.server import status_of
from tests.support.waiting import eventually
from zmqtriton_extras.fleet.serve.groups import Group
from zmqtriton_extras.fleet.serve.owned_server import OwnedServer, server_options
from zmqtriton_floor.errors import InvalidArgument, Unavailable, ZmqTritonError

pytestmark = pytest.mark.system

MODELS = ROOT / "tests" / "models"
QUIET = ("--log-info=false", "--http-address=127.0.0.1", "--grpc-address=127.0.0.1")


def options(*words: str, models: dict[str, int] | None = None) -> list[str]:
    group = Group(model_repository=[str(MODELS)], models=models, options=[*QUIET, *words])
    return server_options("g", group)[0]


@pytest.fixture
def server() -> Iterator[OwnedServer]:
    owned = OwnedServer("g-1", options(models={}))
    try:
        owned.wait_until_open()
        yield owned
    finally:
        owned.stop(0, 0)


def processes(server: OwnedServer) -> list[psutil.Process]:
    supervisor = psutil.Process(server.announcement()["pid"])
    return [supervisor, *supervisor.children(recursive=True)]


def test_its_models_change_and_it_stops_in_order(server: OwnedServer) -> None:
    server.check()
    server.load("add_sub")
    server.load("add_sub")
    assert server.node is not None
    ready = f"{server.node.url}/v2/models/add_sub/ready"
    assert status_of(ready) == 200
    with pytest.raises(ZmqTritonError, match="no_such"):
        server.load("no_such")
    server.unload("add_sub")
    assert status_of(ready) == 400

    ended: list[str] = []
    server.on_end(ended.append)
    began = processes(server)
    server.stop(5.0, 30.0)

    assert [each for each in began if each.is_running()] == []
    assert ended == [], "it did not end by itself"


def test_one_that_hangs_is_noticed_and_killed_with_all_its_processes(server: OwnedServer) -> None:
    began = processes(server)
    for each in began:
        each.suspend()

    with pytest.raises(Unavailable, match="does not answer"):
        server.check()
    server.stop(30.0, 60.0)

    psutil.wait_procs(began, 30)
    assert [each for each in began if each.is_running()] == []


@pytest.mark.long(
    "extras/fleet/system/test_announcing.py::test_a_server_that_is_killed_is_announced_as_ended"
)
def test_the_end_of_a_server_is_told_with_its_reason(server: OwnedServer) -> None:
    ended: list[str] = []
    server.on_end(ended.append)

    os.kill(server.announcement()["pid"], signal.SIGKILL)

    assert eventually(lambda: ended, 60) == ["the server was killed by SIGKILL; its log says more"]


def test_one_that_cannot_start_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        owned = OwnedServer("g-1", options(f"--http-port={taken.getsockname()[1]}", models={}))
        with pytest.raises(Unavailable, match="ended with 1"):
            owned.wait_until_open()
        owned.stop(0, 0)


def test_it_ends_with_its_owner_however_that_ends() -> None:
    code = (
        "import sys, time\n"
        "from zmqtriton_extras.fleet.serve.owned_server import OwnedServer\n"
        "server = OwnedServer('g-1', sys.argv[1:])\n"
        "server.wait_until_open()\n"
        "print(server.announcement()['pid'], flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-c", code, *options(models={})]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        supervisor = psutil.Process(int(owner.stdout.readline()))
        owner.kill()

    eventually(lambda: not supervisor.is_running(), 60)


def test_options_that_are_the_fleets_or_wrong_are_refused(tmp_path: Path) -> None:
    def refusal(option: str, models: dict[str, int] | None = None) -> str:
        group = Group(model_repository=[str(tmp_path)], models=models, options=[option])
        with pytest.raises(InvalidArgument) as error:
            server_options("g", group)
        return error.value.text

    assert (
        refusal("--owner-descriptor=3")
        == "groups.g: --owner-descriptor is set by the fleet: remove it"
    )
    assert "either models or --model-control-mode" in refusal("--model-control-mode=poll", {})
    assert "would not start" in refusal("--no-such-option=1")


def test_the_time_to_stop_is_that_of_drain_and_options_together() -> None:
    options = ["--exit-timeout-secs=7", "--exit-drain-secs=3"]
    group = Group(model_repository=["/m"], options=options, drain_within_s=20.0)

    assert server_options("g", group)[1] == 30.0
