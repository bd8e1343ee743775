"""Loads, reloads, hangs and the end of a real server, seen from outside."""

from __future__ import annotations

import json
import os
import random
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tritonclient.utils import InferenceServerException

from tests.faults.load import Load
from tests.standard.ctl.system.commands import ctl
from tests.support.clients import open_client
from tests.support.server import Server
from tests.support.waiting import eventually
from tests.system.shared_server import SharedServer

pytestmark = pytest.mark.system


def _states(client: Any) -> dict[str, str]:
    index = client.get_model_repository_index()
    if hasattr(index, "models"):
        return {entry.name: entry.state for entry in index.models}
    return {entry["name"]: entry.get("state", "") for entry in index}


@pytest.mark.row("--model-control-mode")
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_models_are_loaded_and_unloaded_on_request(shared: SharedServer, protocol: str) -> None:
    model = f"asked_over_{protocol}"  # the server has never heard of it
    shared.add_model("add_sub", model)
    shared.load("string_upper")
    with open_client(shared, protocol) as client:
        states = _states(client)
        assert ("", "READY") == (states[model], states["string_upper"])
        with pytest.raises(InferenceServerException, match=f"unknown model: '{model}' is not"):
            client.get_model_config(model)

        client.load_model(model)
        assert client.is_model_ready(model)
        assert 1 == len(shared.stub_pids(model))

        client.unload_model(model)
        assert not client.is_model_ready(model)
        eventually(lambda: _states(client)[model] == "UNAVAILABLE", 30, "unloaded")
        assert not shared.stub_pids(model)
        assert client.is_server_ready()


def test_a_hung_execution_is_ended_at_its_bound(shared: SharedServer) -> None:
    config = shared.add_model("journal") / "config.pbtxt"
    bound = 'parameters { key: "max_execution_seconds" value { string_value: "0.5" } }'
    config.write_text(f"{config.read_text()}\n{bound}\n")
    shared.load("journal")
    pids = shared.stub_pids("journal")
    with Load(shared.http_port, clients=1, milliseconds=60_000) as load:
        eventually(lambda: load.answers, 30, "an answer")
    first = load.answers[0]

    assert 503 == first.status
    assert "execute() took longer than max_execution_seconds (0.5)" in first.text
    eventually(lambda: set(shared.stub_pids("journal")) - set(pids), 30, "a new stub")
    # The operator is told where it hung.
    place = r"seconds \(0.5\): Aborted\\n\\nAt:\\n  .*/journal/1/model.py\(\d+\): execute"
    assert re.search(f"has died: .*{place}", shared.log_text())


def test_a_stopped_stub_is_replaced(shared: SharedServer) -> None:
    shared.load("add_sub")
    (pid,) = shared.stub_pids("add_sub")
    os.kill(pid, signal.SIGSTOP)

    eventually(lambda: shared.stub_pids("add_sub") not in ([], [pid]), 30, "a new stub")
    eventually(shared.is_ready, 30, "ready")


def test_readiness_follows_the_only_instance(shared: SharedServer) -> None:
    shared.add_model("journal")
    hold = shared.block_imports("journal")
    shared.load("journal")
    hold.touch()
    os.kill(shared.stub_pids("journal")[0], signal.SIGKILL)
    eventually(lambda: shared.status("/v2/models/journal/ready") == 400, 30, "not ready")

    hold.unlink()

    eventually(lambda: shared.status("/v2/models/journal/ready") == 200, 30, "ready")


def test_ctl_tells_what_runs_and_why_something_died(shared: SharedServer) -> None:
    def told() -> list[Any]:
        """Return the processes; none while one is ending."""
        rows: list[Any] = json.loads(ctl(shared, "status", "--json").stdout)["processes"]
        rows = [row for row in rows if row["role"] != "reader"]
        running = sorted(pid for pids in shared.pids().values() for pid in pids)
        return rows if running == sorted(row["pid"] for row in rows) else []

    def told_of_stub() -> dict[str, Any]:
        """Return its process; other tests of this file may have models, and kill, too."""
        [stub] = [row for row in eventually(told, 60) if row.get("model") == "add_sub"]
        return dict(stub)

    shared.load("add_sub")
    before = told_of_stub()["restarts"]
    shared.replace_only("stub", "add_sub")
    eventually(shared.is_ready, 30, "ready")

    stub = told_of_stub()
    assert shared.stub_pids("add_sub") == [stub["pid"]]
    assert (before + 1, "killed by SIGKILL") == (stub["restarts"], stub["last_reason"])


# ------------------------------------------------------------------------------------------- floods
# Many loads and unloads of several models at once: the models alone are left.


MODELS = ["identity_fp32", "add_sub", "string_upper"]


@pytest.mark.server(models=MODELS)
def test_a_flood_of_loads_and_unloads_leaves_the_models_alone(server: Server) -> None:
    chance = random.Random(7)
    calls = [(chance.choice(MODELS), chance.choice(["load", "unload"])) for _ in range(60)]

    def ask(what: tuple[str, str]) -> int:
        model, verb = what
        return server.request_json(f"/v2/repository/models/{model}/{verb}", {})[0]

    with ThreadPoolExecutor(20) as threads:
        statuses = set(threads.map(ask, calls))
        final = set(threads.map(ask, [(model, "load") for model in MODELS]))

    # A load that another request has overtaken may be refused, and nothing worse.
    assert statuses <= {200, 400, 503}, statuses
    assert {200} == final
    eventually(lambda: len(server.pids()["stub"]) == len(MODELS), 30, "one stub for each")
    assert [200] * len(MODELS) == [server.status(f"/v2/models/{name}/ready") for name in MODELS]
    assert "Traceback" not in server.log_text()
