"""Slices of GPUs (MIG), by a library that stands for NVIDIA's: they have not run on a GPU yet."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.gpus.servers import nvml_variables
from tests.support.scripted import string_parameter
from tests.support.server import Server, tensor
from tests.support.waiting import eventually
from zmqtriton.config.pbtxt import parse_text, to_json
from zmqtriton_extras.mps import settings

pytestmark = pytest.mark.system

CONFIG = """
name: "m"
backend: "python"
input { name: "IN" data_type: TYPE_INT32 dims: 1 }
output { name: "TEXT" data_type: TYPE_STRING dims: 1 }
"""
CODE = """
import os, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.device = args["model_instance_device_id"]

    def execute(self, requests):
        time.sleep(0.01)
        text = np.array([f"{os.environ['CUDA_VISIBLE_DEVICES']} {self.device}"], object)
        answer = pb_utils.InferenceResponse([pb_utils.Tensor("TEXT", text)])
        return [answer for _ in requests]
"""
_ADOPT = """
    def adopt(self, old):
        self.device = old.device  # %d
"""
ONE_GPU = "instance_group { kind: KIND_GPU count: %d gpus: [ 1 ] }\n"


def slices(*numbers: int) -> str:
    return string_parameter("CUDA_VISIBLE_DEVICES", ", ".join(f"MIG-{n:08}" for n in numbers))


def said(tmp_path: Path, *words: str, slices: int = 2) -> str:
    """Return what a command says on a machine with these slices on the second of two GPUs."""
    environment = {**os.environ, **nvml_variables(2, tmp_path / "memory")}
    environment["HOST_NVML_SLICES"] = f"{slices}"
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (ONE_GPU % 2 + slices(0, 1), ""),
        (ONE_GPU % 3 + slices(0, 1), "its 3 instances share 2 slices: list one for each"),
        (ONE_GPU % 1 + slices(5), "this machine has no slice MIG-00000005; it has MIG-00000000"),
        (slices(0) + "instance_group { kind: KIND_CPU }", "kind: KIND_GPU and gpus: [ 0 ]"),
        (slices(0) + "instance_group { kind: KIND_GPU gpus: [ 0, 1 ] }", "on different GPUs"),
        (
            ONE_GPU % 1 + slices(0) + string_parameter("GPU_SHARE", "30%"),
            "GPU_SHARE is for whole GPUs, and CUDA_VISIBLE_DEVICES names slices: remove it",
        ),
    ],
)
def test_the_check_compares_slices_with_the_machine_and_the_instances(
    tmp_path: Path, more: str, text: str
) -> None:
    (tmp_path / "models/m/1").mkdir(parents=True)
    (tmp_path / "models/m/1/model.py").write_text(CODE)
    (tmp_path / "models/m/config.pbtxt").write_text(CONFIG + more)

    answer = said(tmp_path, "zmqtriton", "check", str(tmp_path / "models"))

    assert text in answer
    assert bool(text) is ("config.pbtxt" in answer), answer


def test_the_doctor_lists_slices(tmp_path: Path) -> None:
    answer = said(tmp_path, "zmqtriton.ctl.main", "doctor")

    for number in range(2):
        uuid = f"MIG-{number:08}"
        assert f"GPU 1 has the slice {uuid} (NVIDIA H200 MIG 1g.18gb)" in answer


def test_a_machine_without_slices_has_none_to_list(tmp_path: Path) -> None:
    assert "has the slice" not in said(tmp_path, "zmqtriton.ctl.main", "doctor", slices=0)


def test_a_model_with_slices_is_no_client_of_mps() -> None:
    config = to_json(parse_text(ONE_GPU % 1 + slices(0)))
    assert (True, False) == (settings.has_slices(config), settings.has_slices("{}"))
    problems = settings.problems(parse_text(string_parameter("GPU_SHARE", "30%") + slices(0)))
    assert ["whole GPUs" in each.text for each in problems] == [True]


def test_each_instance_sees_its_slice_as_the_first_gpu(tmp_path: Path) -> None:
    environment = {**nvml_variables(2, tmp_path / "memory"), "HOST_NVML_SLICES": "2"}
    options = ["--model-control-mode=explicit"]
    with Server(tmp_path / "server", models=[], options=options, environment=environment) as server:
        server.write_model("m", CONFIG + ONE_GPU % 2 + slices(0, 1), CODE)
        assert not server.control_model("load", "m")
        seen = set[str]()

        def ask(_: int) -> str:
            answer = server.infer_json("m", tensor("IN", "INT32", [1]))[1]
            return str(answer["outputs"][0]["data"][0])

        def have_both_answered() -> bool:
            with ThreadPoolExecutor(4) as pool:
                seen.update(pool.map(ask, range(4)))
            return len(seen) == 2

        eventually(have_both_answered, 60)
        alone = server.write_model(
            "alone", CONFIG.replace('"m"', '"alone"') + ONE_GPU % 1 + slices(1)
        )
        for version in range(2):  # the second adopts in the same process
            code = CODE + _ADOPT % version
            (alone / "1/model.py").write_text(code)
            assert not server.control_model("load", "alone")
            answer = server.infer_json("alone", tensor("IN", "INT32", [1]))[1]
            assert ["MIG-00000001 0"] == answer["outputs"][0]["data"]
        assert "kept what adopt()" in server.log_text()

    assert {"MIG-00000000 0", "MIG-00000001 0"} == seen
