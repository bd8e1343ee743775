"""The effects of a configuration on a real server, seen from outside.

Labels, versions, passive instances, reasons, and the text that models and clients read.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

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
output [ { name: "Y" data_type: TYPE_STRING dims: [ 1 ] } ]
ensemble_scheduling { step [ { model_name: "versions" model_version: %s
  input_map { key: "A" value: "X" } output_map { key: "TOLD" value: "Y" } } ] }
"""
OPTIONS = (
    "--model-control-mode=explicit",
    "--load-model=*",
    "--exit-on-error=false",
    "--strict-readiness=false",
    "--model-config-name=custom",
    "--log-verbose=1",
)


def write(server: Server, name: str, config: str, versions: tuple[int, ...] = (1,)) -> Path:
    directory = server.repository / name
    directory.mkdir()
    (directory / "config.pbtxt").write_text(config)
    (directory / "labels.txt").write_text("cat\ndog\nbird\n")
    for version in versions:
        (directory / str(version)).mkdir()
        (directory / str(version) / "model.py").write_text(MODEL)
    return directory


def prepare(server: Server) -> None:
    parameter = 'parameters { key: "P" value { string_value: "$$TRITON_MODEL_DIRECTORY/x" } }\n'
    write(server, "plain", CONFIG + parameter)
    groups = "instance_group [ { count: 2 passive: true }, { count: 1 } ]\n"
    write(server, "passive", CONFIG + groups)
    policy = "version_policy { specific { versions: [ 1, 3, 9 ] } }\n"
    write(server, "versions", CONFIG + policy, (1, 2, 3))
    write(server, "latest", CONFIG + "version_policy { latest { num_versions: 2 } }\n", (1, 2, 3))
    write(server, "all", CONFIG + "version_policy { all { } }\n", (1, 5))
    write(server, "gone", CONFIG + "version_policy { specific { versions: [ 9 ] } }\n")
    scores = ENSEMBLE.replace(
        '"Y" data_type: TYPE_STRING dims: [ 1 ]', '"Y" data_type: TYPE_FP32 %s'
    )
    scores = scores.replace('"TOLD"', '"SCORES"') % (
        'dims: [ 3 ] label_filename: "labels.txt"',
        "-1",
    )
    write(server, "scores", scores)
    write(server, "of_newest", ENSEMBLE % "-1")
    write(server, "of_first", ENSEMBLE % "1")
    custom = write(server, "custom", "this is not read") / "configs" / "custom.pbtxt"
    custom.parent.mkdir()
    custom.write_text(CONFIG)
    write(server, "wrong", CONFIG + "max_batch_sizes: 1\n")
    write(
        server, "wrong_input", CONFIG.replace("dims: [ 1 ] } ]\noutput", "dims: [ 0 ] } ]\noutput")
    )
    write(server, "lost", ENSEMBLE.replace('"versions"', '"version"') % "-1")
    agent = 'model_repository_agents { agents { name: "checksum" parameters { key: "MD5:%s" '
    write(server, "changed", CONFIG + agent % "1/model.py" + 'value: "00" } } }\n')


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Any]:
    with triton.InferenceServerClient(server.url.removeprefix("http://")) as client:
        yield client


def ask(client: Any, model: str, name: str = "A", version: str = "", classes: str = "") -> Any:
    """With the two best classes of an output, or all outputs as they are."""
    tensor = triton.InferInput(name, [1], "FP32")
    tensor.set_data_from_numpy(np.zeros(1, dtype=np.float32))
    outputs = [triton.InferRequestedOutput(classes, class_count=2)] if classes else None
    return client.infer(model, [tensor], model_version=version, outputs=outputs)


def arguments_of(client: Any, model: str, version: str = "") -> dict[str, str]:
    """Return what `initialize` was given."""
    arguments: dict[str, str] = json.loads(ask(client, model, version=version).as_numpy("TOLD")[0])
    return arguments


def get(server: Server, path: str) -> str:
    with urllib.request.urlopen(f"{server.url}{path}", timeout=30) as answer:
        return str(answer.read().decode())


def reason(client: Any, model: str) -> str:
    """Why the index says that it is not served."""
    (entry,) = [m for m in client.get_model_repository_index() if m["name"] == model]
    return str(entry["reason"])


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


@pytest.mark.row("E36")
def test_the_version_policy_says_which_versions_are_served(server: Server, client: Any) -> None:
    def versions(model: str) -> list[str]:
        return list(client.get_model_metadata(model)["versions"])

    assert [["1", "3"], ["2", "3"], ["1", "5"]] == [
        versions("versions"),
        versions("latest"),
        versions("all"),
    ]
    missing = (
        "version 9 is specified for model 'versions', but the version directory is not present"
    )
    eventually(lambda: missing in server.log_text(), 60)
    nothing = "at least one version must be available under the version policy of model 'gone'"
    with pytest.raises(InferenceServerException, match=nothing):
        client.load_model("gone")


@pytest.mark.row("E57")
def test_a_step_names_its_version_or_has_the_newest(client: Any) -> None:
    newest = json.loads(ask(client, "of_newest", "X").as_numpy("Y")[0])
    first = json.loads(ask(client, "of_first", "X").as_numpy("Y")[0])

    assert ("3", "1") == (newest["model_version"], first["model_version"])


@pytest.mark.row("E08", "--model-config-name")
def test_a_configuration_of_another_name_is_taken_where_there_is_one(client: Any) -> None:
    assert "1" == arguments_of(client, "custom")["model_version"]
    assert "1" == arguments_of(client, "plain")["model_version"]


@pytest.mark.row("E09")
def test_what_the_server_completes_is_logged(server: Server) -> None:
    expected = '] "Server side auto-completed config: "\nname: "plain'
    eventually(lambda: expected in server.log_text(), 60)


def test_a_reason_names_file_line_and_what_was_meant(server: Server, client: Any) -> None:
    path = server.repository / "wrong" / "config.pbtxt"
    lost = server.repository / "lost" / "config.pbtxt"
    tensor = server.repository / "wrong_input" / "config.pbtxt"

    text = reason(client, "wrong")

    assert text.startswith(f"failed to read text proto from {path}\n{path}:7:1: ")
    assert "Did you mean 'max_batch_size'?" in text
    assert f"for wrong_input (at {tensor}:2)" in reason(client, "wrong_input")
    assert "Did you mean 'versions'?" in reason(client, "lost")
    assert reason(client, "lost").endswith(f"(at {lost}:4)")


@pytest.mark.row("E49")
def test_a_file_with_another_checksum_keeps_the_model_from_loading(client: Any) -> None:
    assert "Mismatched MD5 hash for file 1/model.py, expected 00" in reason(client, "changed")
