"""Instances that share one load have room where as many processes would not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.scripted import string_parameter
from tests.support.server import Server
from tests.support.waiting import eventually

CODE = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def preload(args):
        TritonPythonModel.weights = np.ones(150 << 17)

    def initialize(self, args):
        weights = getattr(TritonPythonModel, "weights", None)
        self.weights = np.ones(150 << 17) if weights is None else weights

    def execute(self, requests):
        return [pb_utils.InferenceResponse() for _ in requests]
"""
#: Room for one load of the model, and for few instances of it.
OPTIONS = ["--model-control-mode=explicit", "--load-on-demand", "--model-memory-budget=330M"]
pytestmark = [pytest.mark.system, pytest.mark.server(options=OPTIONS, frontends=())]
OUTPUT = 'output { name: "OUT" data_type: TYPE_INT32 dims: 1 }\n'


def write(directory: Path, kind: str) -> None:
    (directory / "1").mkdir(parents=True)
    limits = {"INSTANCES": kind, "autoscale_min_instances": 4, "autoscale_max_instances": 4}
    parameters = "".join(string_parameter(key, str(value)) for key, value in limits.items())
    group = "instance_group { count: 1 kind: KIND_CPU }\n"
    (directory / "config.pbtxt").write_text(f'backend: "python"\n{OUTPUT}{group}{parameters}')
    (directory / "1" / "model.py").write_text(CODE)


@pytest.mark.long(
    "standard/scaling/test_autoscaler.py::test_an_instance_that_is_a_fork_takes_what_is_its_own",
    "standard/scaling/test_autoscaler.py::test_of_threads_a_second_one_shows_what_each_takes",
    "standard/scaling/test_autoscaler.py::test_so_does_the_budget_of_all_models",
)
@pytest.mark.row("L06")
@pytest.mark.parametrize("kind", ["forks", "threads", "processes"])
def test_more_instances_start_where_one_more_costs_little(server: Server, kind: str) -> None:
    write(server.repository / kind, kind)
    assert not server.control_model("load", kind)

    def scale() -> Any:
        return server.request_json(f"/v2/models/{kind}/scale")[1]

    if kind == "processes":
        refusal = eventually(lambda: scale()["autoscale"]["obstacle"], 60, "no room")
        assert "and too little memory is left" in refusal
        assert 1 == scale()["versions"]["1"]["ready"]
    else:
        eventually(lambda: scale()["versions"]["1"]["ready"] == 4, 60, "all four")
    assert not server.control_model("unload", kind)
    eventually(lambda: not server.pids().get("stub"), 60, "its memory is free")
