"""Models of a hub and of registries, served by real servers that share what they have fetched."""

from __future__ import annotations

import importlib.util
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as http_client

from tests.addons.ctl.system.commands import ctl
from tests.conftest import skip_missing
from tests.support.clients import infer_inputs
from tests.support.model_sources import Hub, Registry, layer
from tests.support.server import Server
from tests.support.waiting import eventually

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
    with http_client.InferenceServerClient(server.url.removeprefix("http://")) as client:
        [tensor] = infer_inputs(http_client, IN=np.array([1], np.int32))
        texts: Any = client.infer(name, [tensor]).as_numpy("OUT")
    return [text.decode() for text in texts]


def load(server: Server, name: str) -> None:
    with http_client.InferenceServerClient(server.url.removeprefix("http://")) as client:
        client.load_model(name)


def test_servers_share_what_they_fetch_of_a_hub_and_a_registry(tmp_path: Path) -> None:
    if importlib.util.find_spec("huggingface_hub") is None:
        skip_missing("huggingface_hub")
    with Hub() as hub, Registry() as registry:
        # Given private models of a branch and of a tag
        hub.token, registry.login = "hf_secret", "me:secret"
        commit = hub.put("org/name", model("of_hub", "hub"), large={"of_hub/1/weights": b"w"})
        files = {f"models/{path}": data for path, data in model("of_image", "image").items()}
        digest = registry.put("v1", layer(files))
        urls = ["hf://org/name@main", f"oci://{registry.address}/org/image:v1"]
        variables = {
            **hub.variables,
            **registry.login_file(tmp_path),
            "HF_TOKEN": hub.token,
            "HF_HOME": str(tmp_path / "hf"),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        }
        options = [
            *(f"--model-repository={url}" for url in urls),
            "--model-control-mode=explicit",
            "--load-model=*",
        ]
        servers = [
            Server(
                tmp_path / name / "s",
                options=[*options, f"--runtime-directory={tmp_path / name}/run"],
                environment=variables,
                frontends=(),
            )
            for name in ("first", "second")
        ]

        with servers[0] as first:
            # Then they are served, without the server's credentials
            assert [["hub", ""], ["image", ""]] == [ask(first, n) for n in ("of_hub", "of_image")]
            log = first.log_text()
            for url, revision in zip(urls, (commit, digest), strict=True):
                assert f"{url} is {revision}, as long as this server runs" in log
            assert "hf_secret" not in log
            output = ctl(first, "explain", "of_hub").output
            assert f"it comes from {urls[0]}, which is {commit} for this server" in output

            # When branch and tag are moved
            hub.put("org/name", model("of_hub", "later"))
            registry.put(
                "v1", layer({f"models/{p}": d for p, d in model("of_image", "late").items()})
            )

            # Then this server stays at what it has, and the next one takes the new
            for name in ("of_hub", "of_image"):
                load(first, name)
            assert ["hub", "image"] == [ask(first, n)[0] for n in ("of_hub", "of_image")]
            with servers[1] as second:
                assert ["later", "late"] == [ask(second, n)[0] for n in ("of_hub", "of_image")]
            # and what both have was fetched once
            assert 1 == len(hub.paths("/of_hub/config.pbtxt"))


@pytest.mark.long("addons/storage/test_file_stores.py::test_a_cut_download_goes_on_where_it_was")
def test_a_server_goes_on_where_a_killed_one_has_stopped(tmp_path: Path) -> None:
    weights = bytes(range(256)) * 40_000
    with Registry() as registry:
        files = {"config.pbtxt": CONFIG, "1/model.py": MODEL.format(says="x").encode()}
        names = [*files, "1/weights"]
        registry.put("v1", *files.values(), weights, titles=dict(enumerate(names)))
        options = [f"--model-repository=oci://{registry.address}/org/large:v1"]
        variables = {"ZMQTRITON_MODEL_CACHE": str(tmp_path)}
        is_killed, is_halfway = threading.Event(), threading.Event()

        def wait(path: str = "") -> None:
            if not is_halfway.is_set():
                is_halfway.set()
                is_killed.wait(60)

        registry.halfway = wait
        killed = Server(tmp_path / "a", options=options, environment=variables, frontends=())
        killed.launch()
        try:
            assert is_halfway.wait(60)
            partial = tmp_path / "models" / "blobs" / "sha256"
            eventually(
                lambda: any(p.stat().st_size >= 4 << 20 for p in partial.glob("*.partial")), 60
            )
        finally:
            killed.kill()
            is_killed.set()

        with Server(tmp_path / "b", options=options, environment=variables, frontends=()) as server:
            assert "x" == ask(server, "large")[0]

        ranges = [a.headers["range"] for a in registry.requests if "range" in a.headers]
        assert 1 == len(ranges)
        assert int(ranges[0].removeprefix("bytes=").removesuffix("-")) >= 4 << 20
