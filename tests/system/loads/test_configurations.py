"""A server that polls: what configurations do, and that changes harm nothing that serves."""

from __future__ import annotations

import json

import pytest

from tests.faults.stamps import MODEL, SteadyLoad, index_entry, model_file, write_stamp
from tests.support.server import Server, tensor
from tests.support.waiting import eventually
from tests.system.loads.test_model_control import tries

#: Answers with what it was told, and which instance it is.
_TELLING = """
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
        models=(MODEL, "scripted"),
        options=("--model-control-mode=poll", "--repository-poll-secs=1", "--log-verbose=1"),
        frontends=(),
    ),
]


def write(server: Server, name: str, config: str) -> None:
    (server.write_model(name, config, _TELLING) / "labels.txt").write_text("cat\ndog\nbird\n")


def prepare(server: Server) -> None:
    parameter = 'parameters { key: "P" value { string_value: "$$TRITON_MODEL_DIRECTORY/x" } }\n'
    write(server, "plain", CONFIG + parameter)
    groups = "instance_group [ { count: 2 passive: true }, { count: 1 } ]\n"
    write(server, "passive", CONFIG + groups)
    write(server, "scores", ENSEMBLE)


def arguments_of(server: Server, model: str) -> dict[str, str]:
    """Return what `initialize` was given."""
    _, answer = server.infer_json(model, tensor("A", "FP32", [0.0]), outputs=[{"name": "TOLD"}])
    return json.loads(answer["outputs"][0]["data"][0])


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

    assert (3, {"passive_1_0"}) == (len(server.stub_pids("passive")), names)
    assert 200 == server.status("/v2/models/passive/ready")


@pytest.mark.row("E35")
def test_classes_have_the_names_of_the_label_file(server: Server) -> None:
    assert ["dog", "bird"] == classes_of(server, "plain", "A", "SCORES")
    assert ["dog", "bird"] == classes_of(server, "scores", "X", "Y")


@pytest.mark.row("E09")
def test_what_the_server_completes_is_logged(server: Server) -> None:
    expected = '] "Server side auto-completed config: "\nname: "plain'
    eventually(lambda: expected in server.log_text(), 60)


_MESSAGE = "Failed to process the request for model 'scripted_0_0', message: "
_NOT_EXPLICIT = (
    "explicit model load / unload is not allowed if polling is enabled. Start the server with "
    "--model-control-mode=explicit"
)


@pytest.mark.row("A95", "F20", "C76")
def test_without_explicit_control_models_are_asked_for_only(server: Server) -> None:
    outcomes = tries(
        server,
        'load_model("scripted")',
        'unload_model("scripted")',
        'is_model_ready("scripted")',
    )

    assert [
        f"Failed to load model: {_MESSAGE}{_NOT_EXPLICIT}",
        f"Failed to unload model: {_MESSAGE}{_NOT_EXPLICIT}",
        "True",
    ] == outcomes
    for verb in ("load", "unload"):
        path = f"/v2/repository/models/scripted/{verb}"
        assert (503, {"error": _NOT_EXPLICIT}) == server.request_json(path, {})


def _stamp(asking: SteadyLoad) -> int:
    return asking.answers[-1].stamps[0] if asking.answers else -1


@pytest.mark.row("F02", "--model-control-mode", "--repository-poll-secs")
def test_changes_are_served_without_a_gap_and_failures_keep_what_was(server: Server) -> None:
    eventually(lambda: "Polling model repository" in server.log_text(), 30, "the first poll")
    pids = server.stub_pids(MODEL)
    with SteadyLoad(server.http_port, per_second=50) as asking:
        sound = model_file(server).read_text()
        model_file(server).write_text("syntax error\n")
        said = f"failed to load '{MODEL}' version 1: Internal: SyntaxError"
        eventually(lambda: said in server.log_text(), 30, "the failure")
        # What has failed may still be on its way out.
        eventually(lambda: pids == server.stub_pids(MODEL), 30, "the same stubs")
        assert "READY" == index_entry(server)["state"]

        model_file(server).write_text(sound)
        write_stamp(server, 7)
        eventually(lambda: _stamp(asking) == 7, 30, "the next version")
        eventually(lambda: set(pids).isdisjoint(server.stub_pids(MODEL)), 30, "the others' end")
    assert not asking.failed()
