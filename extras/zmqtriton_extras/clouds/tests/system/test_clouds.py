"""The endpoints of SageMaker and Vertex AI, as real Triton 2.51 answers on its own."""

from __future__ import annotations

import http.client
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.server import MODELS_DIRECTORY, Server, free_ports
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

_ONES = np.ones((1, 16), np.float32)
_REQUEST = {
    "inputs": [
        {"name": name, "datatype": "FP32", "shape": [1, 16], "data": [1.0] * 16}
        for name in ("INPUT0", "INPUT1")
    ],
    "outputs": [{"name": "OUTPUT0"}],
}
_BOOM = """
class TritonPythonModel:
    def execute(self, requests):
        raise MemoryError("CUDA out of memory")
"""
_ENSEMBLE = """
platform: "ensemble"
max_batch_size: 8
input [{name: "INPUT0" data_type: TYPE_FP32 dims: [16]},
       {name: "INPUT1" data_type: TYPE_FP32 dims: [16]}]
output [{name: "OUTPUT0" data_type: TYPE_FP32 dims: [16]}]
ensemble_scheduling { step [{
  model_name: "member" model_version: -1
  input_map {key: "INPUT0" value: "INPUT0"} input_map {key: "INPUT1" value: "INPUT1"}
  output_map {key: "OUTPUT0" value: "OUTPUT0"}
}] }
"""
_ENVIRONMENT = {
    "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "add_sub",
    "AIP_PREDICT_ROUTE": "/predict",
    "AIP_HEALTH_ROUTE": "/health",
}


@dataclass
class Clouds:
    server: Server
    sagemaker: int
    vertex: int


@dataclass
class Answer:
    status: int
    content_type: str
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


def _ask(
    port: int,
    method: str,
    path: str,
    body: Any = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method, path, data, headers or {})
        response = connection.getresponse()
        return Answer(response.status, response.getheader("Content-Type", ""), response.read())
    finally:
        connection.close()


@pytest.fixture(scope="module")
def clouds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clouds]:
    sagemaker, vertex = free_ports(2)
    options = [
        "--model-control-mode=explicit",
        "--load-model=add_sub",
        "--allow-sagemaker=true",
        f"--sagemaker-port={sagemaker}",
        "--allow-vertex-ai=true",
        f"--vertex-ai-port={vertex}",
    ]
    server = Server(
        tmp_path_factory.mktemp("clouds") / "s",
        ["add_sub", "identity_fp32"],
        options=options,
        environment=_ENVIRONMENT,
        frontends=("metrics",),
    )
    with server:
        eventually(lambda: _is_open(sagemaker) and _is_open(vertex), 60, "the endpoints")
        yield Clouds(server, sagemaker, vertex)


def _is_open(port: int) -> bool:
    try:
        return bool(_ask(port, "GET", "/").status)
    except OSError:
        return False


def _states(clouds: Clouds) -> dict[str, str]:
    entries = clouds.server.request_json("/v2/repository/index", {})[1]
    return {entry["name"]: entry.get("state", "") for entry in entries}


def _is_unloaded(clouds: Clouds, model: str) -> bool:
    return _states(clouds).get(model, "") in ("", "UNAVAILABLE")


def _sum(answer: Answer) -> bool:
    return bool(answer.status == 200 and answer.document["outputs"][0]["data"] == [2.0] * 16)


def _binary_request() -> tuple[bytes, int]:
    entry = {"datatype": "FP32", "shape": [1, 16], "parameters": {"binary_data_size": 64}}
    inputs = [{"name": name, **entry} for name in ("INPUT0", "INPUT1")]
    output = {"name": "OUTPUT0", "parameters": {"binary_data": True}}
    head = json.dumps({"inputs": inputs, "outputs": [output]}).encode()
    return head + _ONES.tobytes() * 2, len(head)


@pytest.mark.row("C99")
def test_sagemaker_pings_and_invokes_one_model(clouds: Clouds) -> None:
    port = clouds.sagemaker

    assert (_ask(port, "GET", "/ping").status, _ask(port, "GET", "/ping").body) == (200, b"")
    assert _sum(_ask(port, "POST", "/invocations", _REQUEST))
    for method, path in (("POST", "/ping"), ("GET", "/invocations")):
        answer = _ask(port, method, path)
        assert (answer.status, answer.document) == (405, {"error": "Method Not Allowed"})
    for method, path in (("GET", "/ping/"), ("GET", "/v2"), ("PUT", "/models")):
        answer = _ask(port, method, path)
        assert (answer.status, answer.body) == (400, b"")


@pytest.mark.parametrize("cloud", ["sagemaker", "vertex-ai"])
def test_the_length_of_the_json_is_a_part_of_the_content_type(clouds: Clouds, cloud: str) -> None:
    port = clouds.sagemaker if cloud == "sagemaker" else clouds.vertex
    path = "/invocations" if cloud == "sagemaker" else "/predict"
    kind = f"application/vnd.{cloud}-triton.binary+json;json-header-size="
    body, length = _binary_request()

    answer = _ask(port, "POST", path, body, {"Content-Type": f"{kind}{length}"})
    after = _ask(port, "POST", path, body, {"Content-Type": f"x {kind}{length}"})
    beyond = _ask(port, "POST", path, body, {"Content-Type": f"{kind}99999"})

    assert answer.status == 200
    assert (2 * _ONES).tobytes() == answer.body[-64:]
    if cloud == "sagemaker":
        assert f"{kind}{len(answer.body) - 64}" == answer.content_type
    text = f"expect MIME type for binary data starts with '{kind}', got: x {kind}{length}"
    assert (400, {"error": text}) == (after.status, after.document)
    text = f"inference header size should be in range (0, {len(body)}), got: 99999"
    assert (400, {"error": text}) == (beyond.status, beyond.document)


@pytest.mark.row("C99")
def test_sagemaker_loads_invokes_lists_and_unloads_many_models(
    clouds: Clouds, tmp_path: Path
) -> None:
    port, models = clouds.sagemaker, tmp_path / "h1" / "model"
    shutil.copytree(MODELS_DIRECTORY / "add_sub", models / "any")
    with (models / "any" / "config.pbtxt").open("a") as config:
        config.write('name: "any"\n')
    load = {"model_name": "h1", "url": str(models)}
    row = {"modelName": "h1", "modelUrl": str(models)}

    assert _ask(port, "POST", "/models/h1/invoke", _REQUEST).status == 404
    assert (_ask(port, "POST", "/models", load).status, b"") == (200, b"")
    assert {"models": [row]} == _ask(port, "GET", "/models").document
    assert row == _ask(port, "GET", "/models/h1").document
    invoked = _ask(port, "POST", "/models/h1/invoke", _REQUEST)
    assert _sum(invoked)
    assert invoked.document["model_name"] == "h1"
    text = f"model repository '{models}' has already been registered"
    again = _ask(port, "POST", "/models", load)
    assert (409, {"error": text}) == (again.status, again.document)
    other = tmp_path / "other"
    shutil.copytree(models, other)
    again = _ask(port, "POST", "/models", {"model_name": "h1", "url": str(other)})
    text = "failed to register 'h1', there is a conflicting mapping for 'h1'"
    assert (409, {"error": text}) == (again.status, again.document)

    assert _ask(port, "DELETE", "/models/h1").status == 200
    assert _ask(port, "GET", "/models").document == {"models": []}
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/invoke")):
        assert _ask(port, method, f"/models/h1{path}", _REQUEST).status == 404
    eventually(lambda: "h1" not in _states(clouds), 60, "it is forgotten")


def test_sagemaker_unloads_an_ensemble_with_its_members_and_no_neighbours(
    clouds: Clouds, tmp_path: Path
) -> None:
    port, both = clouds.sagemaker, tmp_path / "both" / "model"
    shutil.copytree(MODELS_DIRECTORY / "add_sub", both / "member")
    (both / "outer" / "1").mkdir(parents=True)
    (both / "outer" / "config.pbtxt").write_text(_ENSEMBLE)
    for name in ("one", "two"):
        shutil.copytree(MODELS_DIRECTORY / "add_sub", tmp_path / "near" / name)
    near = {"model_name": "near", "url": str(tmp_path / "near" / "one")}

    assert _ask(port, "POST", "/models", {"model_name": "e", "url": str(both)}).status == 200
    assert _sum(_ask(port, "POST", "/models/e/invoke", _REQUEST))
    assert _ask(port, "DELETE", "/models/e").status == 200
    eventually(lambda: _is_unloaded(clouds, "member"), 60, "the member has gone")

    assert _ask(port, "POST", "/models", near).status == 200
    assert clouds.server.control_model("load", "two") == ""
    assert _ask(port, "DELETE", "/models/near").status == 200
    assert clouds.server.status("/v2/models/two/ready") == 200
    assert clouds.server.control_model("unload", "two") == ""


def test_sagemaker_names_a_model_by_its_archive(clouds: Clouds, tmp_path: Path) -> None:
    port, name = clouds.sagemaker, {"X-Amzn-SageMaker-Target-Model": "archive"}
    # here the directory is the model
    shutil.copytree(MODELS_DIRECTORY / "add_sub", tmp_path / "hash" / "model")
    load = {"model_name": "hash", "url": str(tmp_path / "hash" / "model")}

    assert _ask(port, "POST", "/models", load, name).status == 200
    assert _sum(_ask(port, "POST", "/models/hash/invoke", _REQUEST, name))
    unnamed = _ask(port, "POST", "/models/hash/invoke", _REQUEST)
    assert unnamed.document == {"error": "Request for unknown model: 'hash' is not found"}
    assert unnamed.status == 400
    assert _ask(port, "DELETE", "/models/hash", None, name).status == 200


def test_sagemaker_hears_what_it_can_act_on(clouds: Clouds, tmp_path: Path) -> None:
    port, model = clouds.sagemaker, tmp_path / "model" / "boom"
    shutil.copytree(MODELS_DIRECTORY / "add_sub", model)
    (model / "1" / "model.py").write_text(_BOOM)
    broken = tmp_path / "broken" / "boom"
    shutil.copytree(model, broken)
    (broken / "1" / "model.py").write_text("raise ValueError('no')")

    def load(name: Any, url: Any) -> Answer:
        return _ask(port, "POST", "/models", {"model_name": name, "url": url})

    assert load("boom", str(model.parent)).status == 200
    assert _ask(port, "POST", "/models/boom/invoke", _REQUEST).status == 507
    assert _ask(port, "POST", "/models/boom/invoke", {}).status == 400
    assert _ask(port, "DELETE", "/models/boom").status == 200
    failed = load("broken", str(broken.parent))
    assert failed.status == 400
    assert "load failed for model 'broken'" in failed.document["error"]
    text = "failed to register '/not/here', repository not found"
    assert (400, {"error": text}) == (
        load("x", "/not/here").status,
        load("x", "/not/here").document,
    )
    for name, url in ((5, str(broken)), ("x", 5), ("a/b", str(broken.parent)), ("x", "/proc/1")):
        assert load(name, url).status == 400
    assert _ask(port, "POST", "/models", b"x").status == 400
    assert _ask(port, "GET", "/models").document == {"models": []}
    assert clouds.server.is_ready()


@pytest.mark.row("C99")
def test_vertex_ai_asks_for_health_and_predictions(clouds: Clouds) -> None:
    port = clouds.vertex

    assert _ask(port, "GET", "/health").status == 200
    assert _sum(_ask(port, "POST", "/predict", _REQUEST))
    assert _ask(port, "GET", "/predict").status == 405
    for path in ("/v2", "/predict/", "/"):
        answer = _ask(port, "POST", path, _REQUEST)
        assert (answer.status, answer.body) == (400, b"")


@pytest.mark.row("C99")
def test_vertex_ai_redirects(clouds: Clouds) -> None:
    def redirect(target: str, body: Any = None) -> Answer:
        header = {"X-Vertex-Ai-Triton-Redirect": target}
        return _ask(clouds.vertex, "POST", "/predict", body, header)

    assert "extensions" in redirect("v2").document
    assert redirect("v2/models/add_sub").document["name"] == "add_sub"
    for target in ("v2/health/live", "v2/models/add_sub/ready", "v2/models/add_sub/versions/1"):
        assert redirect(target).status == 200
    assert redirect("v2/models/add_sub/config").document["max_batch_size"] == 8
    assert "model_stats" in redirect("v2/models/stats").document
    assert _sum(redirect("v2/models/add_sub/infer", _REQUEST))
    assert redirect("v2/repository/models/identity_fp32/load", {}).status == 200
    assert len(redirect("v2/repository/index", {"ready": True}).document) == 2
    assert redirect("v2/repository/models/identity_fp32/unload", {}).status == 200
    assert b"nv_inference_count{" in redirect("metrics").body
    for target in ("x", "/v2", "v2/", "v2/logging", "v2/models/add_sub/generate"):
        assert (redirect(target).status, redirect(target).body) == (400, b"")
    headers = {"X-Vertex-Ai-Triton-Redirect": "v2"}
    assert _ask(clouds.vertex, "GET", "/predict", None, headers).status == 405


def test_the_log_names_the_endpoints(clouds: Clouds) -> None:
    log = clouds.server.log_text()

    assert f"Started Sagemaker HTTPService at 127.0.0.1:{clouds.sagemaker}" in log
    assert f"Started Vertex AI HTTPService at 127.0.0.1:{clouds.vertex}" in log
