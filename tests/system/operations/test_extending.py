"""The package of the guide "Extend the server", installed as it is printed, and used."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.support.server import ROOT, Server
from tests.support.waiting import eventually
from zmqtriton_floor import token_file
from zmqtriton_floor.token_file import ALL_MODELS, Grant
from zmqtriton_protos import message

pytestmark = pytest.mark.system

GUIDE = ROOT / "docs" / "guides" / "extending.md"
#: A file of the package: its path, then a comment for tests of pages, then its text.
FILE = re.compile(r"^`([\w./]+)`:\n\n<!--.*?-->\n\n```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONFIGURATION = re.compile(r"^```\n(# models/seven.*?)^```$", re.MULTILINE | re.DOTALL)

#: A step of somebody else's, in one file: how many requests wait for the model of an answer.
QUEUE_LENGTH = """
from zmqtriton_floor.wire import LOAD

def queue_length(gateway):
    def step(ask, request):
        async def report():
            model = request.model
            answer = await gateway.statistics(model.name, model.version, kind=LOAD)
            return [("x-queue-length", str(answer["loads"][0]["queued"]))]
        return request.with_report(report)
    return step
"""
TOKEN, OF_OTHERS = "zmqt_a-secret-of-all-0123456789", "zmqt_a-secret-of-some-0123456789"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the package of the guide, and a process that the test adds to it."""
    source = tmp_path_factory.mktemp("source")
    files = dict(FILE.findall(GUIDE.read_text("utf-8")))
    files["model_ages/constant/__init__.py"] = ""
    files["model_ages/queue_length.py"] = QUEUE_LENGTH
    steps = '[project.entry-points."zmqtriton.steps"]\n'
    row = 'queue_length = "model_ages.queue_length:queue_length"\n'
    files["pyproject.toml"] = files["pyproject.toml"].replace(steps, steps + row)
    for name, text in files.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    target = tmp_path_factory.mktemp("target")
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--offline", "--no-deps"]
    uv += ["--no-build-isolation", "--python", sys.executable, "--target", str(target)]
    subprocess.run([*uv, str(source)], check=True)
    return target


@pytest.fixture(scope="module")
def server(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("server")
    roots = os.pathsep.join((str(installed), os.environ.get("PYTHONPATH", "")))
    options = [f"--runtime-directory={directory}/run", f"--tokens={directory}/tokens"]
    grants = [
        Grant("all", token_file.digest(TOKEN), token_file.parse_scopes("infer"), ALL_MODELS),
        Grant("others", token_file.digest(OF_OTHERS), token_file.parse_scopes("infer"), ("x*",)),
    ]
    tokens = directory / "tokens"
    tokens.write_text("".join(grant.line() + "\n" for grant in grants))
    tokens.chmod(0o600)
    server = Server(
        directory, options=options, environment={"PYTHONPATH": roots}, frontends=("grpc",)
    )
    [configuration] = CONFIGURATION.findall(GUIDE.read_text("utf-8"))
    server.write_model("seven", configuration)
    with server:
        yield server


def ctl(server: Server, installed: Path, *words: str) -> str:
    command = [sys.executable, "-m", "zmqtriton.ctl.main", *words]
    roots = os.pathsep.join((str(installed), os.environ.get("PYTHONPATH", "")))
    environment = {
        **os.environ,
        "PYTHONPATH": roots,
        "RUNTIME_DIRECTORY": f"{server.directory}/run",
    }
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_its_command_speaks_to_the_server(server: Server, installed: Path) -> None:
    assert re.fullmatch(r"seven seven_0 \d+\n", ctl(server, installed, "ages"))
    assert "Print the age of each instance" in ctl(server, installed, "--help")


def ask(
    server: Server, path: str, token: str = TOKEN, document: Any = None
) -> tuple[int, Any, Message]:
    body = None if document is None else json.dumps(document).encode()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    answer = server.exchange(path, body, headers)
    return answer.status, answer.document, answer.headers


def test_its_route_is_served(server: Server) -> None:
    status, document, _ = ask(server, "/ages")

    assert (200, ["seven"]) == (status, document["models"])


@pytest.mark.parametrize(("token", "status"), [(TOKEN, 200), (OF_OTHERS, 403), ("", 401)])
def test_its_route_infers_as_far_as_the_token_of_its_client_goes(
    server: Server, token: str, status: int
) -> None:
    answer, document, _ = ask(server, "/sum", token)

    assert status == answer
    assert 14 == document.get("sum", 14)


def test_its_backend_runs_a_model_and_its_steps_report_beside_the_answer(server: Server) -> None:
    infer, generate = "/v2/models/seven/infer", "/v2/models/seven/generate"

    status, answer, headers = ask(server, infer, document={"inputs": []})
    assert (200, [7.0]) == (status, answer["outputs"][0]["data"])
    # the process of the guide asks the model, too: its request may wait
    assert 0 <= int(headers["x-queue-length"])
    assert 0 <= int(headers["x-model-age"])
    assert 0 <= int(ask(server, generate, document={})[2]["x-queue-length"])

    with grpc.insecure_channel(server.grpc_address) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        request = message("inference.ModelInferRequest")(model_name="seven").SerializeToString()
        _, rpc = call.with_call(request, metadata=[("authorization", f"Bearer {TOKEN}")])
        assert 0 <= int(dict(rpc.trailing_metadata())["x-queue-length"])


def test_its_process_asks_models_and_is_replaced(server: Server, installed: Path) -> None:
    def watcher() -> dict[str, Any]:
        status = json.loads(ctl(server, installed, "status", "-o", "json"))
        [process] = [p for p in status["processes"] if p["role"] == "add-on:watcher"]
        return dict(process)

    sevens = server.directory / "sevens"
    eventually(lambda: sevens.exists() and sevens.read_text().startswith("7.0"), 60)
    sevens.unlink()
    os.kill(watcher()["pid"], signal.SIGKILL)

    eventually(sevens.exists, 60)
    assert 1 == watcher()["restarts"]
