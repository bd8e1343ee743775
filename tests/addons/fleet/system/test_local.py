"""`zmqtriton fleet up` with processes on this machine: everything but the way to other machines."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.addons.fleet.fleet_process import FleetProcess
from tests.addons.fleet.proxies.programs import find
from tests.faults.stamps import MODEL, SteadyLoad
from tests.support.journal import UNTIL_RELEASED, executions, release_execution
from tests.support.waiting import eventually
from zmqtriton_addons.fleet.node_server import NodeServer

pytestmark = pytest.mark.system

PER_SECOND, CLIENTS = 100, 16
#: The first by name, so it is the one that moves.
MOVING = "a_moving_model"


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the model `journal`."""
    return tmp_path_factory.mktemp("scratch") / "journal"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory, journal: Path) -> Path:
    path = tmp_path_factory.mktemp("repository")
    for model in (MODEL, "add_sub", "journal"):
        shutil.copytree(Path("tests/models") / model, path / model)
    settings = path / "journal" / "config.pbtxt"
    settings.write_text(settings.read_text().replace("@SCRATCH@", str(journal.parent)))
    shutil.copytree(path / MODEL, path / MOVING)
    settings = path / MOVING / "config.pbtxt"
    settings.write_text(settings.read_text().replace(f'"{MODEL}"', f'"{MOVING}"'))
    return path


@pytest.fixture(scope="module")
def fleet(repository: Path) -> Iterator[FleetProcess]:
    find("haproxy")
    options = ["--engine=local", "--replicas=add_sub=1", f"--replicas={MOVING}=1"]
    with FleetProcess(*options, repository=repository) as process:
        yield process


def nodes_with(fleet: FleetProcess, model: str) -> list[int]:
    """The processes of servers on which a model is ready."""
    with suppress(FileNotFoundError):
        return [
            each["pid"]
            for each in fleet.announced()
            if any(m["name"] == model and m["ready"] for m in each["models"])
        ]
    return []


def test_models_of_a_killed_server_move_and_it_gets_one_when_it_is_back(
    fleet: FleetProcess,
) -> None:
    [victim] = eventually(lambda: nodes_with(fleet, "add_sub"), 60)
    [other] = eventually(lambda: nodes_with(fleet, MOVING), 60)
    assert 2 == len(nodes_with(fleet, MODEL)), "every server has it"
    assert victim != other
    eventually(lambda: fleet.status(f"/v2/models/{MOVING}/ready") == 200, 60)

    with (
        SteadyLoad(fleet.http_port, per_second=PER_SECOND // 2, clients=CLIENTS) as asking,
        SteadyLoad(fleet.http_port, per_second=PER_SECOND // 2, model=MOVING) as of_moving,
    ):
        eventually(lambda: len(asking.answers) > PER_SECOND, 60)
        os.kill(victim, signal.SIGKILL)
        fleet.wait_until_ready(without=victim)
        eventually(lambda: nodes_with(fleet, "add_sub") == [other], 60)
        eventually(lambda: fleet.status("/v2/models/add_sub/ready") == 200, 60)
        # drained where it was, and asked for at the new place alone
        eventually(lambda: {*nodes_with(fleet, MOVING)} == fleet.pids() - {other}, 60)
        count = len(of_moving.answers)
        eventually(lambda: len(of_moving.answers) > count + PER_SECOND, 60)

    assert victim not in fleet.pids()
    assert len(asking.failed()) <= CLIENTS, "only what it was executing"
    assert [] == of_moving.failed()
    assert "was killed by SIGKILL" in fleet.log


def test_a_new_version_is_rolled_out_through_the_announcements(
    fleet: FleetProcess, repository: Path
) -> None:
    code = repository / MODEL / "1" / "model.py"
    code.write_text(code.read_text().replace("STAMP = 0", "STAMP = 7"))
    command = [sys.executable, "-m", "zmqtriton.ctl.main", "fleet", f"--servers={fleet.directory}"]

    with SteadyLoad(fleet.http_port, per_second=PER_SECOND, clients=CLIENTS) as asking:
        done = subprocess.run(
            [*command, "rollout", MODEL], capture_output=True, text=True, timeout=120, check=False
        )
        count = len(asking.answers)
        eventually(lambda: len(asking.answers) > count + 2 * CLIENTS, 60)

    assert 2 == done.stdout.count("has the new version"), done.stderr
    assert [] == asking.failed()
    assert {7} == set(asking.answers[-1].stamps)


def test_after_a_signal_it_ends_in_order_with_what_was_begun(
    fleet: FleetProcess, journal: Path
) -> None:
    url = f"http://127.0.0.1:{fleet.http_port}/v2/models/journal/infer"
    inputs = [
        {"name": "ID", "datatype": "BYTES", "shape": [1, 1], "data": ["held"]},
        {"name": "MS", "datatype": "INT32", "shape": [1, 1], "data": [UNTIL_RELEASED]},
    ]
    body = json.dumps({"inputs": inputs}).encode()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(lambda: urllib.request.urlopen(url, body, timeout=60).status)
        eventually(lambda: executions(journal) == {"held": 1}, 60)

        os.kill(fleet.pid, signal.SIGTERM)
        eventually(lambda: fleet.status("/v2/health/ready") != 200, 60, "the servers stop")
        release_execution(journal, "held")

        assert 200 == answer.result()
    assert 0 == fleet.wait()
    assert [] == fleet.announced()


def test_nothing_is_left_of_one_that_is_killed(repository: Path) -> None:
    """The test fails by itself if it leaves a process."""
    with FleetProcess("--engine=local", repository=repository) as fleet:
        assert -signal.SIGKILL == fleet.stop(signal.SIGKILL)


def test_a_server_that_cannot_start_is_reported(repository: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = [f"--model-repository={repository}", "--http-address=127.0.0.1"]
        server = NodeServer("node-1", [*options, f"--http-port={port}", "--log-info=false"])
        try:
            eventually(lambda: "ended with 1" in server.look().problem, 60)
        finally:
            server.stop()


def refusal(*options: str) -> str:
    command = [sys.executable, "-m", "zmqtriton", "fleet", "up", "--engine=local", "--nodes=1"]
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, timeout=60, check=False
    )
    assert 1 == done.returncode
    return done.stderr


def test_wrong_options_are_refused_before_anything_starts(repository: Path) -> None:
    models = f"--model-repository={repository}"

    assert "--no-such-option" in refusal(models, "--no-such-option=1")
    assert "no repository has the model 'other'" in refusal(models, "--replicas=other=1")
    assert "MODEL=N" in refusal(models, "--replicas=other")
    assert "'8000' is not HOST:PORT" in refusal(models, "--proxy-http=8000")
    assert "--announce is the fleet's own" in refusal(models, "--announce=/tmp/x.json")
    if importlib.util.find_spec("ray") is None:
        assert "pip install ray" in refusal(models, "--engine=ray")
