"""Models of a running server that sleep: their memory, their process, and their requests."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from tests.standard.ctl.system.commands import ctl
from tests.support.server import Server, Written

MIB = 1 << 20
CONFIG = """
backend: "python"
input { name: "IN" data_type: TYPE_INT32 dims: 1 }
output { name: "OUT" data_type: TYPE_INT32 dims: 1 }
instance_group { count: 2 kind: KIND_CPU }
"""
CODE = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.wake_up()

    def sleep(self):
        self.weights = None

    def wake_up(self):
        self.weights = np.ones(64 << 17)

    def execute(self, requests):
        doubled = [pb_utils.get_input_tensor_by_name(r, "IN").as_numpy() * 2 for r in requests]
        assert self.weights.sum() == 64 << 17
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", one)]) for one in doubled]
"""
pytestmark = [
    pytest.mark.system,
    pytest.mark.server(models=[Written("heavy", CONFIG, CODE)]),
]


def memory(server: Server) -> float:
    """Return its processes' own memory in MiB; shares of other pages grow as others end."""
    return sum(psutil.Process(p).memory_full_info().uss for p in server.stub_pids("heavy")) / MIB


def double(server: Server, number: int) -> int:
    tensor = {"name": "IN", "shape": [1], "datatype": "INT32", "data": [number]}
    status, answer = server.request_json("/v2/models/heavy/infer", {"inputs": [tensor]})
    assert status == 200, answer
    [result] = answer["outputs"][0]["data"]
    return int(result)


def test_a_sleeping_model_gives_its_memory_back_and_wakes_up_for_a_request(server: Server) -> None:
    ctl(server, "wake", "heavy")
    pids, awake = set(server.stub_pids("heavy")), memory(server)

    assert "heavy: 2 instances asleep\n" == ctl(server, "sleep", "heavy").stdout
    assert awake - memory(server) > 120, "both have let go of 64 MiB"
    assert 200 == server.status("/v2/models/heavy/ready")
    assert ["heavy"] == list(json.loads(ctl(server, "status", "--output=json").stdout)["asleep_s"])

    assert 14 == double(server, 7)
    assert 60 < awake - memory(server) < 120, "one of them was asked"
    assert {} == json.loads(ctl(server, "status", "--output=json").stdout)["asleep_s"]

    assert "heavy: 2 instances awake\n" == ctl(server, "wake", "heavy").stdout
    assert abs(awake - memory(server)) < 30
    assert pids == set(server.stub_pids("heavy"))


def test_no_request_fails_while_it_is_put_to_sleep_again_and_again(server: Server) -> None:
    def ask(client: int) -> list[int]:
        return [double(server, client * 100 + number) for number in range(30)]

    with ThreadPoolExecutor(4) as threads:
        asking = [threads.submit(ask, client) for client in range(4)]
        while not all(one.done() for one in asking):
            done = ctl(server, "sleep", "heavy")
            assert done.exit_code == 0 or "it has requests" in done.stderr
        for client, one in enumerate(asking):
            assert [2 * (client * 100 + number) for number in range(30)] == one.result()


def test_what_cannot_sleep_is_said(server: Server) -> None:
    server.add_model("add_sub")
    assert not server.control_model("load", "add_sub")

    done = ctl(server, "sleep", "add_sub")

    assert done.exit_code == 1
    assert "its TritonPythonModel needs a method wake_up()" in done.stderr
