"""Models and files of a hub and of a registry, served by a real server."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.standard.ctl.system.commands import ctl
from tests.support.model_sources import Hub, Registry, layer
from tests.support.needs import skip_missing
from tests.support.server import Server, tensor

pytestmark = pytest.mark.system

CONFIG = b"""
backend: "python"
max_batch_size: 0
input [ { name: "IN" data_type: TYPE_INT32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_STRING dims: [ 2 ] } ]
"""
#: Answers what it says, and what it may read of the environment.
MODEL = """
import os
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        texts = [{says!r}, os.environ.get("HF_TOKEN", "") + os.environ.get("DOCKER_CONFIG", "")]
        found = pb_utils.Tensor("OUT", np.array(texts, dtype=np.object_))
        return [pb_utils.InferenceResponse([found]) for _ in requests]
"""


def model(name: str, says: str) -> dict[str, bytes]:
    return {f"{name}/config.pbtxt": CONFIG, f"{name}/1/model.py": MODEL.format(says=says).encode()}


def ask(server: Server, name: str) -> list[str]:
    _, answer = server.infer_json(name, tensor("IN", "INT32", [1]))
    return answer["outputs"][0]["data"]


#: Says what it finds beside itself.
LOCAL_MODEL = """
import os
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        with open(os.path.join(args["model_repository"], "weights.txt")) as file:
            self.texts = ["own code", file.read()]

    def execute(self, requests):
        found = pb_utils.Tensor("OUT", np.array(self.texts, dtype=np.object_))
        return [pb_utils.InferenceResponse([found]) for _ in requests]
"""


def put_local(repository: Path, name: str, url: str, code: str = "") -> None:
    """Write a model whose configuration names its source."""
    (repository / name / "1").mkdir(parents=True, exist_ok=True)
    line = f'parameters {{ key: "MODEL_SOURCE" value {{ string_value: "{url}" }} }}'
    (repository / name / "config.pbtxt").write_text(CONFIG.decode() + line)
    if code:
        (repository / name / "1" / "model.py").write_text(code)


def test_models_and_files_of_a_hub_and_a_registry_stay_what_they_were_until_another_is_named(
    tmp_path: Path,
) -> None:
    if importlib.util.find_spec("huggingface_hub") is None:
        skip_missing("huggingface_hub")
    with Hub() as hub, Registry() as registry:
        # Given private models of a branch and of a tag, and others that have files of such
        hub.token, registry.login = "hf_secret", "me:secret"
        commit = hub.put("org/name", model("of_hub", "hub"), large={"of_hub/1/weights": b"w"})
        files = {f"models/{path}": data for path, data in model("of_image", "image").items()}
        digest = registry.put("v1", layer(files))
        urls = ["hf://org/name@main", f"oci://{registry.address}/org/image:v1"]
        weights = hub.put("org/weights", {"README.md": b"of a hub"}, large={"weights.txt": b"w1"})
        files = {"1/model.py": MODEL.format(says="other").encode(), "config.pbtxt": b"not ours"}
        registry.put("v2", layer({f"models/{path}": data for path, data in files.items()}))
        cache = tmp_path / "cache"
        cache.mkdir()
        variables = {
            **hub.variables,
            **registry.login_file(tmp_path),
            "HF_TOKEN": hub.token,
            "HF_HOME": str(tmp_path / "hf"),
            "ZMQTRITON_MODEL_CACHE": str(cache),
        }
        options = [
            *(f"--model-repository={url}" for url in urls),
            "--model-control-mode=explicit",
            "--load-model=*",
            f"--runtime-directory={tmp_path}/run",
        ]
        server = Server(tmp_path / "s", options=options, environment=variables, frontends=())
        repository = server.repository
        put_local(repository, "mine", "hf://org/weights", LOCAL_MODEL)
        put_local(repository, "other", f"oci://{registry.address}/org/image:v2")
        (repository / "other" / "1").rmdir()

        with server:
            # Then they are served, without the server's credentials, own files first
            assert [["hub", ""], ["image", ""]] == [ask(server, n) for n in ("of_hub", "of_image")]
            assert [["own code", "w1"], ["other", ""]] == [
                ask(server, n) for n in ("mine", "other")
            ]
            log = server.log_text()
            for url, revision in zip(urls, (commit, digest), strict=True):
                assert f"{url} is {revision}, as long as this server runs" in log
            assert "hf_secret" not in log
            for name, url, revision in (
                ("of_hub", urls[0], commit),
                ("mine", "hf://org/weights", weights),
            ):
                output = ctl(server, "explain", name).output
                assert f"it comes from {url}, which is {revision} for this server" in output

            # When branches and tags have moved, and own files have changed
            hub.put("org/name", model("of_hub", "later"))
            late = {f"models/{p}": d for p, d in model("of_image", "late").items()}
            registry.put("v1", layer(late))
            hub.put("org/weights", {"weights.txt": b"w2"})
            put_local(repository, "mine", "hf://org/weights", LOCAL_MODEL.replace("own", "new"))

            # Then the server stays at what it has fetched once
            for name in ("of_hub", "of_image", "mine"):
                assert "" == server.control_model("load", name)
            assert ["hub", "image"] == [ask(server, n)[0] for n in ("of_hub", "of_image")]
            assert ["new code", "w1"] == ask(server, "mine")
            for path in ("/of_hub/config.pbtxt", "/README.md"):
                assert 1 == len(hub.paths(path))

            # When another revision is named that is not there, then what serves stays
            put_local(repository, "mine", "hf://org/weights@v9", LOCAL_MODEL)
            assert "org/weights has no revision 'v9'" in server.control_model("load", "mine")
            assert ["new code", "w1"] == ask(server, "mine")
            put_local(repository, "mine", "s3://bucket/weights", LOCAL_MODEL)
            text = "MODEL_SOURCE is 's3://bucket/weights', but must begin with hf://"
            assert text in server.control_model("load", "mine")

            # When a branch names the new one, then it is served
            put_local(repository, "mine", "hf://org/weights@main", LOCAL_MODEL)
            assert "" == server.control_model("load", "mine")
            assert ["own code", "w2"] == ask(server, "mine")

        # Then nothing but what was fetched is left
        assert [] == list(cache.glob("zmqtriton-*"))
