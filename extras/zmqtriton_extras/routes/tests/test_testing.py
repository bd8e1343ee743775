"""Routes of a model, called by a test without a server."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from zmqtriton_extras.routes.testing import RouteAnswer
from zmqtriton_floor.errors import NotFound

load_model = pytest.importorskip("zmqtriton_extras.authoring.testing").load_model

_CONFIG = """
backend: "python"
max_batch_size: 4
input [ { name: "X", data_type: TYPE_FP32, dims: [ 2 ] } ]
output [ { name: "Y", data_type: TYPE_FP32, dims: [ 2 ] } ]
"""
_MODEL = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.double(r) for r in requests]

    def double(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        if x.min() < 0:
            raise_text = pb_utils.TritonError("below 0", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=raise_text)
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x * 2)])
"""
_ROUTES = """
from zmqtriton.routes import Response, RouteError, route

@route("POST /double/{unit}")
async def double(request, infer):
    outputs = await infer({"X": request.json()["x"]})
    return {request.params["unit"]: outputs["Y"].tolist(), "who": request.headers["x-who"]}

@route("GET /count")
async def count(request, infer):
    for number in range(int(request.query["to"])):
        yield number

@route("GET /made")
def made(request, infer):
    return Response(b"made", 201, {"x-made": "yes"})
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "doubling"
    (directory / "1").mkdir(parents=True)
    (directory / "config.pbtxt").write_text(_CONFIG)
    (directory / "1" / "model.py").write_text(_MODEL)
    return directory


def test_a_route_calls_its_model_and_answers_as_on_a_server(model: Path) -> None:
    (model / "1" / "routes.py").write_text(_ROUTES)

    with load_model(model) as loaded:
        doubled = loaded.call_route("POST /double/mm", json={"x": [1, 2]}, headers={"X-Who": "me"})
        refused = loaded.call_route("POST /double/mm", json={"x": [-1, 2]}, headers={"X-Who": "me"})
        broken = loaded.call_route("POST /double/mm", body=b"{")
        counted = loaded.call_route("GET /count?to=3")
        without = loaded.call_route("GET /count")
        made = loaded.call_route("GET /made")
        unknown = [loaded.call_route(f"{method} /made").status for method in ("PUT", "POST")]
        outputs = loaded.infer(X=np.ones((1, 2), np.float32))

    assert RouteAnswer(200, {"mm": [[2.0, 4.0]], "who": "me"}) == doubled
    assert refused[:2] == (400, {"error": "below 0"})
    assert (broken.status, "the body must be JSON" in broken.value["error"]) == (400, True)
    assert RouteAnswer(200, [0, 1, 2]) == counted
    assert RouteAnswer(400, {"error": "the request has no 'to'; add it"}) == without
    assert RouteAnswer(201, b"made", {"x-made": "yes"}) == made
    assert unknown == [405, 405]
    np.testing.assert_array_equal([[2.0, 2.0]], outputs["Y"])


def test_a_model_without_routes_says_so(model: Path) -> None:
    with load_model(model) as loaded, pytest.raises(NotFound, match=r"there is no .*routes\.py"):
        loaded.call_route("GET /")
