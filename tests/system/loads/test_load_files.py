"""Loads that bring files along, over HTTP, over gRPC and out of a model."""

from __future__ import annotations

import base64
import json
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as triton_grpc
from tritonclient.utils import InferenceServerException

from tests.support import scripted
from tests.support.server import Server
from tests.support.waiting import eventually

CODE = """
import os
import sys
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.text = "CODE " + args["model_version"] + " " + sys.prefix
        self.where = args["model_repository"]

    def execute(self, requests):
        files = sorted(
            f"{os.path.relpath(os.path.join(root, name), self.where)}:"
            f"{os.path.getsize(os.path.join(root, name))}"
            for root, _, names in os.walk(self.where) for name in names if ".pyc" not in name
        )
        out = np.array([f"{self.text} {' '.join(files)}"], dtype=np.object_)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("TEXT", out)]) for _ in requests]
"""
TENSORS: dict[str, Any] = {
    "backend": "python",
    "input": [{"name": "IN", "data_type": "TYPE_STRING", "dims": [1]}],
    "output": [{"name": "TEXT", "data_type": "TYPE_STRING", "dims": [1]}],
    "version_policy": {"all": {}},
}
CONFIG = json.dumps(TENSORS)
pytestmark = [
    pytest.mark.system,
    pytest.mark.server(models=("scripted",), load=("scripted",)),
]


def code(name: str) -> bytes:
    return CODE.replace("CODE", name).encode()


def prepare(server: Server) -> None:
    model = server.add_model("scripted", "m")
    for version in ("1", "3"):
        (model / version).mkdir(exist_ok=True)
        (model / version / "model.py").write_bytes(code("disk"))
    server.edit_config("m", "SCRIPT", "IN")
    with (model / "config.pbtxt").open("a") as config:
        config.write("version_policy { all {} }")


def runtime(server: Server) -> Path:
    return server.directory.parent / "run"


@pytest.fixture
def model(server: Server) -> Iterator[str]:
    """A model of which nothing is left afterwards."""
    assert "" == load(server, "m", {"config": CONFIG})
    yield "m"
    unload(server, "m")


def load(server: Server, model: str, parameters: Mapping[str, Any]) -> str:
    """The error, or ""."""
    status, answer = server.request_json(
        f"/v2/repository/models/{model}/load", {"parameters": dict(parameters)}
    )
    return "" if status == 200 else f"{status} {answer['error']}"


def unload(server: Server, model: str) -> None:
    assert 200 == server.request_json(f"/v2/repository/models/{model}/unload", {})[0]
    eventually(lambda: not staged(server), 30, "files are gone")


def encoded(**files: bytes) -> dict[str, str]:
    return {f"file:{path}": base64.b64encode(content).decode() for path, content in files.items()}


def says(server: Server, model: str, version: str = "") -> str:
    path = f"/v2/models/{model}/{f'versions/{version}/' if version else ''}infer"
    tensor = {"name": "IN", "datatype": "BYTES", "shape": [1], "data": ["x"]}
    status, answer = server.request_json(path, {"inputs": [tensor]})
    return str(answer["outputs"][0]["data"][0]) if status == 200 else f"{status}"


def staged(server: Server) -> list[Path]:
    folder = runtime(server) / "0" / "files"
    return sorted(folder.iterdir()) if folder.exists() else []


@pytest.mark.row("C73", "C72")
def test_files_stand_in_for_the_directory_until_a_load_without_them(
    server: Server, model: str
) -> None:
    assert says(server, model, "3").startswith("disk 3 ")

    assert "" == load(server, model, {"config": CONFIG, **encoded(**{"7/model.py": code("new")})})

    assert f"new 7 {sys.prefix} 7/model.py:{len(code('new'))}" == says(server, model)
    eventually(lambda: says(server, model, "3") == "503", 30, "earlier versions are gone")
    (directory,) = staged(server)
    assert {os.geteuid()} == {path.stat().st_uid for path in (directory, directory / "7")}
    assert not directory.parent.stat().st_mode & stat.S_IROTH
    assert not directory.parent.parent.stat().st_mode & stat.S_IRWXO

    assert "" == load(server, model, {})

    assert says(server, model).startswith("disk 3 ")
    eventually(lambda: not staged(server), 30, "its files are gone")


@pytest.mark.row("C71")
@pytest.mark.parametrize(
    ("parameters", "error"),
    [
        (
            encoded(**{"1/model.py": b""}),
            "400 Load parameter 'config' must be specified for model file override",
        ),
        (
            {"config": CONFIG, **encoded(**{"../x": b"x", "1/model.py": code("new")})},
            "400 Invalid file parameter 'file:../x' with normalized path '../x' must stay within "
            "model directory.",
        ),
        ({"config": CONFIG, "speed": "1"}, "500 unexpected error on creating Triton parameter"),
        (
            {"config": CONFIG, "file:1/model.py": "eA="},
            "400 the content of parameter 'file:1/model.py' is not base64",
        ),
        (
            {"config": "{", **encoded(**{"1/model.py": code("new")})},
            "500 failed to load 'm', failed to poll from model repository: Invalid config override",
        ),
        (
            {"config": CONFIG, **encoded(**{"1/model.py": b"1 / 0"})},
            "400 load failed for model 'm': version 1 is at UNAVAILABLE state: ",
        ),
        (
            {"config": CONFIG, **encoded(data=b"")},
            "400 load failed for model 'm': at least one version must be available",
        ),
    ],
)
def test_what_cannot_be_loaded_leaves_no_file_and_what_served(
    server: Server, model: str, parameters: dict[str, str], error: str
) -> None:
    assert load(server, model, parameters).startswith(error)
    assert says(server, model).startswith("disk 3 ")
    eventually(lambda: not staged(server), 30, "its files are gone")
    assert [] == list(runtime(server).rglob("x"))


def test_an_instance_that_dies_is_started_again_from_the_files(server: Server, model: str) -> None:
    assert "" == load(server, model, {"config": CONFIG, **encoded(**{"1/model.py": code("new")})})
    eventually(lambda: len(server.stub_pids("m")) == 1, 30, "the old instances are gone")
    (pid,) = server.stub_pids("m")

    os.kill(pid, 9)

    eventually(lambda: server.stub_pids("m") not in ([], [pid]), 30, "it is started again")
    eventually(lambda: says(server, model).startswith("new 1 "), 30, "it serves again")


@pytest.mark.row("D08")
def test_files_of_tens_of_megabytes_come_over_grpc(server: Server, model: str) -> None:
    large = os.urandom(1 << 20) * 48
    files = {"file:1/model.py": code("grpc"), "file:1/weights/w.bin": large}

    with triton_grpc.InferenceServerClient(server.grpc_address) as client:
        client.load_model(model, config=CONFIG, files=files)

        with pytest.raises(InferenceServerException) as refused:
            client.load_model(model, config=CONFIG, files={"file:a/../../x": b"x"})

    assert f"1/weights/w.bin:{len(large)}" in says(server, model)
    assert "StatusCode.INVALID_ARGUMENT" == refused.value.status()
    assert (
        "Invalid file parameter 'file:a/../../x' with normalized path '../x' must stay within "
        "model directory." == refused.value.message()
    )
    assert large == (staged(server)[-1] / "1" / "weights" / "w.bin").read_bytes()


@pytest.mark.row("A95")
def test_a_model_brings_files_for_another(server: Server, model: str) -> None:
    script = f"""
    told = []
    for files in (
        {{"file:4/model.py": {code("pb")!r}, "file:4/w": bytes(70 << 20)}},
        {{"file:../x": b""}},
        {{"1/model.py": b""}},
    ):
        try:
            pb_utils.load_model("m", {CONFIG!r}, files)
            told.append("")
        except pb_utils.TritonModelException as error:
            told.append(str(error))
    import json
    return [reply(json.dumps(told))]
    """
    texts = json.loads(scripted.generate(server, "scripted", script))

    failed = "Failed to load model: Failed to process the request for model 'scripted_0_0', message"
    assert [
        "",
        f"{failed}: Invalid file parameter 'file:../x' with normalized path '../x' must stay "
        "within model directory.",
        f"{failed}: unrecognized load parameter '1/model.py'.",
    ] == texts
    assert says(server, model).startswith("pb 4 ")
    assert f"4/w:{70 << 20}" in says(server, model)
