"""Paths of their own that models have for their routes, on a real server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server import Server
from tests.support.waiting import eventually
from zmqtriton_extras.jobs.tests.asking import ask
from zmqtriton_extras.routes.tests.system.test_routes import CONFIG, MODEL

pytestmark = pytest.mark.system

ROUTES = """
from zmqtriton.routes import route

@route("GET /who")
def who(request, infer):
    return {"who": "%s", "path": request.path}

@route("POST /")
async def root(request, infer):
    return (await infer({"IMAGE": request.bytes}))["TEXT"].tolist()[0]
"""

#: Of each model; the last two take turns in one test alone.
PATHS = {
    "first": "/api/it",
    "second": "/api/it/ocr",
    "own": "/v2/mine",
    "outer": "/turns",
    "within": "/turns/in",
}


def add_model(server: Server, name: str, path: str) -> Path:
    directory = server.repository / name
    (directory / "1").mkdir(parents=True)
    parameter = f'parameters {{ key: "ROUTES_PATH" value {{ string_value: "{path}" }} }}\n'
    (directory / "config.pbtxt").write_text(CONFIG + parameter)
    (directory / "1" / "model.py").write_text(MODEL)
    (directory / "1" / "routes.py").write_text(ROUTES % name)
    return directory


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("paths")
    options = ["--routes", "--model-control-mode=explicit", "--load-model=*"]
    # routes that are refused are a model that cannot be loaded
    server = Server(directory, [], options=[*options, "--strict-readiness=false"])
    for name, path in PATHS.items():
        add_model(server, name, path)
    with server:
        yield server


def who(server: Server, path: str) -> object:
    reply = ask(server, path)
    return reply.document.get("who") if reply.status == 200 else reply.status


def reason(server: Server, model: str) -> str:
    index = ask(server, "/v2/repository/index", b"{}").document
    return str([entry.get("reason", "") for entry in index if entry["name"] == f"{model}.routes"])


def ctl(server: Server, *words: str) -> str:
    command = [sys.executable, "-m", "zmqtriton.ctl.main", "--server", f":{server.http_port}"]
    return subprocess.run([*command, *words], capture_output=True, text=True, check=False).stdout


def test_routes_are_served_at_their_path_and_below_models(server: Server) -> None:
    for path in ("/api/it/who", "/models/first/who", "//api/it/who"):
        assert who(server, path) == "first"
    for path in ("/api/it", "/api/it/"):
        assert ask(server, path, b"1").body == b"1 6b86b273"
    assert "its routes are served at /api/it" in ctl(server, "explain", "first")


@pytest.mark.parametrize(
    "path",
    [
        "/api/itwho",
        "/api",
        "/api/i",
        "/apis/it/who",
        "/api/it/nothing",
        "/nothing",
        "/api/it/../it/who",
        "/api/%2e%2e/it/who",
        "/api//it/who",
        "/v2/nothing",
        "/v2/mine/who",
        "/api%2fit/nothing",
        "/%00",
        "/api/it/who%00",
    ],
)
def test_other_paths_are_unknown(server: Server, path: str) -> None:
    reply = ask(server, path)

    assert (reply.status, "error" in reply.document) == (404, True)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("second", "ROUTES_PATH '/api/it/ocr' is taken: the routes of model 'first' are at"),
        ("own", "ROUTES_PATH '/v2/mine' is the server's own"),
    ],
)
def test_a_path_that_cannot_be_had_is_refused_with_its_reason(
    server: Server, model: str, text: str
) -> None:
    eventually(lambda: text in reason(server, model), 60)

    reply = ask(server, f"/models/{model}/who")
    assert (reply.status, "index of the repository says why" in reply.body.decode()) == (503, True)
    assert text in ctl(server, "explain", model)


def test_a_path_that_is_free_again_is_had_by_the_next(server: Server) -> None:
    server.control_model("unload", "outer")
    eventually(lambda: who(server, "/turns/in/who") == "within", 60)

    # it has the path now, although the other one comes first by its name
    server.control_model("load", "outer")
    eventually(lambda: "is taken" in reason(server, "outer"), 60)
    assert who(server, "/turns/in/who") == "within"

    config = server.repository / "outer" / "config.pbtxt"
    config.write_text(config.read_text().replace("/turns", "/two"))
    server.control_model("load", "outer")
    eventually(lambda: who(server, "/two/who") == "outer", 60)
    assert who(server, "/turns/who") == 404
