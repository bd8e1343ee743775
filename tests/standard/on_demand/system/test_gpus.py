"""Two GPUs of a server, with files in place of their memory: a budget, and who sees which."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.standard.ctl.system.commands import ctl
from tests.support.gpus.servers import nvml_variables
from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

_CODE = """
import json, os
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        seen = [os.environ.get("CUDA_VISIBLE_DEVICES"), args["model_instance_device_id"]]
        self.report = json.dumps([*seen, args["model_instance_kind"]])
        self.take(60)

    def take(self, mib):
        path = os.path.join(os.environ["HOST_NVML_MEMORY"], str(os.getpid()))
        with open(path + ".new", "w") as file:
            json.dump({"1": mib << 20}, file)
        os.rename(path + ".new", path)

    SLEEP

    def execute(self, requests):
        report = pb_utils.Tensor("REPORT", np.array([self.report], object))
        return [pb_utils.InferenceResponse([report]) for _ in requests]
"""
_SLEEP = """
    def sleep(self):
        self.take(1)

    def wake_up(self):
        self.report = json.dumps(sum(map(self.taken, os.listdir(os.environ["HOST_NVML_MEMORY"]))))
        self.take(60)

    def taken(self, pid):
        path = os.path.join(os.environ["HOST_NVML_MEMORY"], pid)
        return json.load(open(path))["1"] >> 20 if os.path.exists(f"/proc/{pid}") else 0
"""
_CONFIG = """
backend: "python"
output { name: "REPORT" data_type: TYPE_STRING dims: 1 }
"""
_ALONE = 'parameters { key: "CUDA_VISIBLE_DEVICES" value { string_value: "instance" } }\n'
_FORKS = 'parameters { key: "INSTANCES" value { string_value: "forks" } }\n'
_ON_GPU = "instance_group { count: 1 kind: KIND_GPU gpus: 1 }\n"


def _add(server: Server, name: str, config: str, sleep: str = "") -> None:
    (server.repository / name / "1").mkdir(parents=True)
    (server.repository / name / "config.pbtxt").write_text(_CONFIG + config)
    (server.repository / name / "1" / "model.py").write_text(_CODE.replace("    SLEEP", sleep))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("gpus")
    options = ["--model-control-mode=explicit", "--load-on-demand", "--gpu-memory-budget=1:130M"]
    options.append(f"--runtime-directory={directory}/run")
    variables = nvml_variables(2, directory / "memory")
    server = Server(
        directory / "s",
        options=options,
        environment={**variables, "CUDA_VISIBLE_DEVICES": "GPU-00000000,GPU-00000001"},
        frontends=("metrics",),
    )
    _add(server, "sleeper", _ON_GPU + _ALONE, _SLEEP)
    _add(server, "forked", _ON_GPU + _ALONE + _FORKS)
    _add(server, "other", _ON_GPU)
    _add(server, "late", _ON_GPU)
    with server:
        yield server


def _ask(server: Server, model: str) -> Any:
    status, answer = server.request_json(f"/v2/models/{model}/infer", {"inputs": []})
    assert status == 200, answer
    return json.loads(answer["outputs"][0]["data"][0])


def _state(server: Server, model: str) -> tuple[str, str]:
    _, entries = server.request_json("/v2/repository/index", {})
    [entry] = [entry for entry in entries if entry["name"] == model]
    return entry["state"], entry.get("reason", "")


@pytest.mark.long(
    "standard/on_demand/test_sleeping.py::test_a_model_that_can_sleep_makes_room_and_keeps_its_process",
    "standard/sleeping/test_sleeping_models.py::test_a_sleeping_model_gives_its_memory_back_and_wakes_up_for_a_request",
    "stub/test_readiness.py::test_an_instance_sees_its_gpu_alone_as_the_first",
)
@pytest.mark.row("L07", "B22")
def test_models_share_a_gpu_by_sleep_and_each_sees_its_own(server: Server) -> None:
    assert ["GPU-00000001", "0", "GPU"] == _ask(server, "sleeper")
    [pid] = server.stub_pids("sleeper")
    assert ["GPU-00000001", "0", "GPU"] == _ask(server, "forked")

    # the third makes the first sleep, which stays ready
    assert ["GPU-00000000,GPU-00000001", "1", "GPU"] == _ask(server, "other")
    assert {"1": 1 << 20} == json.loads((_memory(server) / str(pid)).read_text())
    assert "READY" == _state(server, "sleeper")[0]
    assert [pid] == server.stub_pids("sleeper")
    metrics = server.metrics_text()
    assert 'zmqtriton_sleeps_total{model="sleeper",reason="memory"} 1' in metrics
    assert 'zmqtriton_models_gpu_memory_bytes{gpu="1"}' in metrics

    # each of them says what it has there
    def sizes() -> Any:
        _, document = server.request_json("/v2/zmqtriton/status")
        rows = [row for row in document["processes"] if "gpu_bytes" in row]
        return {row["model"]: row["gpu_bytes"] for row in rows}

    own = {"sleeper": {"1": 1 << 20}, "forked": {"1": 60 << 20}, "other": {"1": 60 << 20}}
    eventually(lambda: own == sizes(), 60, "a sample of them")
    rows = json.loads(ctl(server, "stats", "--total", "--output=json").stdout)
    assert [60 << 20, 60 << 20, 1 << 20] == [row["gpu_bytes"] for row in rows]
    assert "\t60 MiB\n" in ctl(server, "stats", "--total").stdout
    text = ctl(server, "explain", "forked").stdout
    assert re.search(r"each has [\d.]+ MiB of its own and .* \(PSS .*\), 60 MiB on GPU 1", text)

    # woken up by a request, it waits until another one has gone that cannot sleep
    assert 61 == _ask(server, "sleeper"), "its own, and that of the third one"
    assert ("UNAVAILABLE", "not loaded: unloaded to make room for 'sleeper'") == _state(
        server, "forked"
    )

    # models that were loaded by name stay, and leave nothing for others
    assert "sleeper: 1 instance asleep\n" == ctl(server, "sleep", "sleeper").stdout
    server.control_model("load", "other")
    server.control_model("load", "late")
    refusal = "model 'sleeper' cannot wake up: models take 121.0 MiB on GPU 1 of the 130.0 MiB"
    status, refused = server.request_json("/v2/models/sleeper/infer", {"inputs": []})
    assert (503, True) == (status, refusal in refused["error"]), refused
    assert refusal in ctl(server, "wake", "sleeper").stderr
    server.control_model("unload", "late")
    server.control_model("load", "sleeper")
    _ask(server, "sleeper")
    refusal = "models take 120.0 MiB on GPU 1 of the 130.0 MiB that --gpu-memory-budget"

    def refused_load() -> bool:
        status, refused = server.request_json("/v2/models/forked/infer", {"inputs": []})
        assert status == 503
        return refusal in refused["error"]

    eventually(refused_load, 60, "the process of 'late' has gone")


def _memory(server: Server) -> Path:
    return server.directory.parent / "memory"
