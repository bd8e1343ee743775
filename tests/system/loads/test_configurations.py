"""The effects of a configuration on a real server, seen from outside.

Labels, passive instances, and the text that models and clients read.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton

from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

FRONTENDS = ()

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
OPTIONS = (
    "--model-control-mode=explicit",
    "--load-model=*",
    "--log-verbose=1",
)


def write(server: Server, name: str, config: str) -> None:
    directory = server.write_model(name, config, MODEL)
    (directory / "labels.txt").write_text("cat\ndog\nbird\n")


def prepare(server: Server) -> None:
    parameter = 'parameters { key: "P" value { string_value: "$$TRITON_MODEL_DIRECTORY/x" } }\n'
    write(server, "plain", CONFIG + parameter)
    groups = "instance_group [ { count: 2 passive: true }, { count: 1 } ]\n"
    write(server, "passive", CONFIG + groups)
    write(server, "scores", ENSEMBLE)


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Any]:
    with triton.InferenceServerClient(server.url.removeprefix("http://")) as client:
        yield client


def ask(client: Any, model: str, name: str = "A", classes: str = "") -> Any:
    """With the two best classes of an output, or all outputs as they are."""
    tensor = triton.InferInput(name, [1], "FP32")
    tensor.set_data_from_numpy(np.zeros(1, dtype=np.float32))
    outputs = [triton.InferRequestedOutput(classes, class_count=2)] if classes else None
    return client.infer(model, [tensor], outputs=outputs)


def arguments_of(client: Any, model: str) -> dict[str, str]:
    """Return what `initialize` was given."""
    arguments: dict[str, str] = json.loads(ask(client, model).as_numpy("TOLD")[0])
    return arguments


def get(server: Server, path: str) -> str:
    with urllib.request.urlopen(f"{server.url}{path}", timeout=30) as answer:
        return str(answer.read().decode())


@pytest.mark.row("E39", "E90", "E91")
def test_models_and_clients_read_the_same_text(server: Server, client: Any) -> None:
    config = arguments_of(client, "plain")["model_config"]

    assert get(server, "/v2/models/plain/config") == config
    assert '"max_batch_size":0,"input":[{"name":"A","data_type":"TYPE_FP32"' in config
    assert '"dims":[1]' in config
    assert '"parameters":{"P":{"string_value":"$$TRITON_MODEL_DIRECTORY/x"}}' in config


@pytest.mark.row("E37")
def test_passive_instances_are_loaded_and_never_asked(server: Server, client: Any) -> None:
    names = {arguments_of(client, "passive")["model_instance_name"] for _ in range(8)}

    assert 3 == len(server.stub_pids("passive"))
    assert {"passive_1_0"} == names
    assert client.is_model_ready("passive")


@pytest.mark.row("E35")
def test_classes_have_the_names_of_the_label_file(client: Any) -> None:
    of_a_model = ask(client, "plain", classes="SCORES").as_numpy("SCORES")
    of_an_ensemble = ask(client, "scores", "X", classes="Y").as_numpy("Y")

    assert [b"dog", b"bird"] == [text.split(b":")[2] for text in of_a_model]
    assert [b"dog", b"bird"] == [text.split(b":")[2] for text in of_an_ensemble]


@pytest.mark.row("E09")
def test_what_the_server_completes_is_logged(server: Server) -> None:
    expected = '] "Server side auto-completed config: "\nname: "plain'
    eventually(lambda: expected in server.log_text(), 60)
