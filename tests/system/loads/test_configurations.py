"""The effects of a configuration on a real server, seen from outside.

Labels, passive instances, and the text that models and clients read.
"""

from __future__ import annotations

import json

import pytest

from tests.support.server import Server, tensor
from tests.support.waiting import eventually

#: Answers with what it was told, and which instance it is.
MODEL = """
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.told = json.dumps({**args, "at": __file__})

    def execute(self, requests):
        given = np.array([self.told.encode()], dtype=np.object_)
        scores = np.array([0.1, 0.7, 0.2], dtype=np.float32)
        tensors = [pb_utils.Tensor("TOLD", given), pb_utils.Tensor("SCORES", scores)]
        return [pb_utils.InferenceResponse(tensors) for _ in requests]
"""
CONFIG = """backend: "python"
input [ { name: "A" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [
  { name: "TOLD" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "SCORES" data_type: TYPE_FP32 dims: [ 3 ] label_filename: "labels.txt" }
]
"""
ENSEMBLE = """platform: "ensemble"
input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 3 ] label_filename: "labels.txt" } ]
ensemble_scheduling { step [ { model_name: "plain" model_version: -1
  input_map { key: "A" value: "X" } output_map { key: "SCORES" value: "Y" } } ] }
"""
pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        options=(
            "--model-control-mode=explicit",
            "--load-model=*",
            "--log-verbose=1",
        ),
        frontends=(),
    ),
]


def write(server: Server, name: str, config: str) -> None:
    directory = server.write_model(name, config, MODEL)
    (directory / "labels.txt").write_text("cat\ndog\nbird\n")


def prepare(server: Server) -> None:
    parameter = 'parameters { key: "P" value { string_value: "$$TRITON_MODEL_DIRECTORY/x" } }\n'
    write(server, "plain", CONFIG + parameter)
    groups = "instance_group [ { count: 2 passive: true }, { count: 1 } ]\n"
    write(server, "passive", CONFIG + groups)
    write(server, "scores", ENSEMBLE)


def arguments_of(server: Server, model: str) -> dict[str, str]:
    """Return what `initialize` was given."""
    _, answer = server.infer_json(model, tensor("A", "FP32", [0.0]), outputs=[{"name": "TOLD"}])
    arguments: dict[str, str] = json.loads(answer["outputs"][0]["data"][0])
    return arguments


def classes_of(server: Server, model: str, source: str, output: str) -> list[str]:
    """Return the names of the two best classes of an output."""
    wish = {"name": output, "parameters": {"classification": 2}}
    _, answer = server.infer_json(model, tensor(source, "FP32", [0.0]), outputs=[wish])
    return [text.split(":")[2] for text in answer["outputs"][0]["data"]]


@pytest.mark.row("E39", "E90", "E91")
def test_models_and_clients_read_the_same_text(server: Server) -> None:
    config = arguments_of(server, "plain")["model_config"]

    assert server.exchange("/v2/models/plain/config").body.decode() == config
    assert '"max_batch_size":0,"input":[{"name":"A","data_type":"TYPE_FP32"' in config
    assert '"dims":[1]' in config
    assert '"parameters":{"P":{"string_value":"$$TRITON_MODEL_DIRECTORY/x"}}' in config


@pytest.mark.row("E37")
def test_passive_instances_are_loaded_and_never_asked(server: Server) -> None:
    names = {arguments_of(server, "passive")["model_instance_name"] for _ in range(8)}

    assert 3 == len(server.stub_pids("passive"))
    assert {"passive_1_0"} == names
    assert 200 == server.status("/v2/models/passive/ready")


@pytest.mark.row("E35")
def test_classes_have_the_names_of_the_label_file(server: Server) -> None:
    assert ["dog", "bird"] == classes_of(server, "plain", "A", "SCORES")
    assert ["dog", "bird"] == classes_of(server, "scores", "X", "Y")


@pytest.mark.row("E09")
def test_what_the_server_completes_is_logged(server: Server) -> None:
    expected = '] "Server side auto-completed config: "\nname: "plain'
    eventually(lambda: expected in server.log_text(), 60)
