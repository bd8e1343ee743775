"""Paths of their own that models have for their routes, on a real server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.addons.jobs.asking import ask
from tests.addons.routes.system.test_routes import CONFIG, MODEL
from tests.support.server import Server
from tests.support.waiting import eventually

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
    # routes that are refused are a model that cannot be loaded
    options = ["--routes", "--strict-readiness=false"]
    server = Server(directory, ["identity_fp32"], options=options)
    for name, path in (
        ("first", "/shop"),
        ("second", "/shop/ocr"),
        ("third", "/api/third"),
        ("own", "/v2/mine"),
        ("bad", "/../v2"),
    ):
        add_model(server, name, path)
    with server:
        yield server


def who(server: Server, path: str) -> object:
    reply = ask(server, path)
    return reply.document.get("who") if reply.status == 200 else reply.status


def ctl(server: Server, *words: str) -> str:
    command = [sys.executable, "-m", "zmqtriton.ctl.main", "--server", str(server.http_port)]
    return subprocess.run([*command, *words], capture_output=True, text=True, check=False).stdout


def test_routes_are_served_at_their_path_and_below_models(server: Server) -> None:
    for path in ("/shop/who", "/models/first/who"):
        assert "first" == who(server, path)
    for path in ("/api/third/who", "/models/third/who", "//api/third/who"):
        assert "third" == who(server, path)
    assert "its routes are served at /api/third" in ctl(server, "explain", "third")
    assert b"1 6b86b273" == ask(server, "/api/third", b"1").body
    assert b"1 6b86b273" == ask(server, "/api/third/", b"1").body


@pytest.mark.parametrize(
    "path",
    [
        *("/api/thirdwho", "/api", "/api/thir", "/shops/who", "/api/third/nothing", "/nothing"),
        *("/api/third/../third/who", "/api/%2e%2e/third/who", "/api//third/who"),
        *("/v2/nothing", "/v2/mine/who", "/api%2fthird/nothing", "/%00", "/api/third/who%00"),
    ],
)
def test_other_paths_are_unknown(server: Server, path: str) -> None:
    reply = ask(server, path)

    assert (404, True) == (reply.status, "error" in reply.document)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("second", "ROUTES_PATH '/shop/ocr' is taken: the routes of model 'first' are at '/shop'"),
        ("own", "ROUTES_PATH '/v2/mine' is the server's own"),
        ("bad", "ROUTES_PATH must be a path such as '/ocr'"),
    ],
)
def test_a_path_that_cannot_be_had_is_refused_with_its_reason(
    server: Server, model: str, text: str
) -> None:
    eventually(lambda: text in ctl(server, "explain", f"{model}.routes"), 60)

    assert text in ctl(server, "explain", model)
    reply = ask(server, f"/models/{model}/who")
    assert (503, True) == (reply.status, "index of the repository says why" in reply.body.decode())
    check = subprocess.run(
        [sys.executable, "-m", "zmqtriton", "check", str(server.repository)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert text in check.stdout


def test_a_path_that_is_free_again_is_had_by_the_next(tmp_path: Path) -> None:
    options = ["--routes", "--model-control-mode=explicit", "--load-model=*"]
    server = Server(tmp_path, [], options=[*options, "--strict-readiness=false"])
    for name in ("a", "b"):
        add_model(server, name, "/it")
    with server:
        assert "a" == who(server, "/it/who")

        server.control_model("unload", "a")
        eventually(lambda: who(server, "/it/who") == "b", 60)

        # b has it now, although a comes first
        server.control_model("load", "a")
        eventually(lambda: "is taken" in ctl(server, "explain", "a"), 60)
        assert "b" == who(server, "/it/who")


def test_a_path_that_is_changed_is_the_next_load_s(tmp_path: Path) -> None:
    options = ["--routes", "--model-control-mode=explicit", "--load-model=*"]
    server = Server(tmp_path, [], options=options)
    directory = add_model(server, "a", "/one")
    with server:
        assert "a" == who(server, "/one/who")

        config = directory / "config.pbtxt"
        config.write_text(config.read_text().replace("/one", "/two"))
        server.control_model("load", "a")

        eventually(lambda: who(server, "/two/who") == "a", 60)
        eventually(lambda: who(server, "/one/who") == 404, 60)
