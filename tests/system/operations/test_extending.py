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
from functools import partial
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

TOKEN, OF_OTHERS = "zmqt_a-secret-of-all-0123456789", "zmqt_a-secret-of-some-0123456789"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the package of the guide."""
    source = tmp_path_factory.mktemp("source")
    files = dict(FILE.findall(GUIDE.read_text("utf-8")))
    files["greeting/__init__.py"] = files["greeting/constant/__init__.py"] = ""
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
    options.append("--greeting=hello")
    grants = [
        Grant(
            "all",
            token_file.Grant.digest_of(TOKEN),
            token_file.parse_scopes("infer,metrics"),
            ALL_MODELS,
        ),
        Grant(
            "others",
            token_file.Grant.digest_of(OF_OTHERS),
            token_file.parse_scopes("infer"),
            ("x*",),
        ),
    ]
    tokens = directory / "tokens"
    tokens.write_text("".join(grant.line() + "\n" for grant in grants))
    tokens.chmod(0o600)
    server = Server(
        directory, options=options, environment={"PYTHONPATH": roots}, frontends=("grpc", "metrics")
    )
    [configuration] = CONFIGURATION.findall(GUIDE.read_text("utf-8"))
    server.write_model("seven", configuration)
    own = 'parameters { key: "GREETING" value { string_value: "good day" } }\n'
    server.write_model("polite", configuration + own)
    with server:
        yield server


def _environment(installed: Path, **more: str) -> dict[str, str]:
    roots = os.pathsep.join((str(installed), os.environ.get("PYTHONPATH", "")))
    return {**os.environ, "PYTHONPATH": roots, **more}


def ctl(server: Server, installed: Path, *words: str) -> str:
    command = [sys.executable, "-m", "zmqtriton.ctl.main", *words]
    environment = _environment(installed, RUNTIME_DIRECTORY=f"{server.directory}/run")
    return subprocess.check_output(command, env=environment, text=True)


def test_its_commands_run(server: Server, installed: Path) -> None:
    assert "2\n" == ctl(server, installed, "greetings")
    assert "Print how many models have been greeted" in ctl(server, installed, "--help")
    command = [sys.executable, "-m", "zmqtriton"]
    run = partial(subprocess.check_output, text=True, env=_environment(installed))
    assert "Hello you\n" == run([*command, "greet", "you"])
    text = "greeting:\n  --greeting <string>\n        Said in a header of each answer.\n"
    assert text in run([*command, "--help", "greeting"])


def ask(
    server: Server, path: str, token: str = TOKEN, document: Any = None
) -> tuple[int, Any, Message]:
    body = None if document is None else json.dumps(document).encode()
    answer = server.exchange(path, body, {"Authorization": f"Bearer {token}"} if token else {})
    return answer.status, answer.body, answer.headers


@pytest.mark.parametrize(("token", "status"), [(TOKEN, 200), (OF_OTHERS, 403), ("", 401)])
def test_its_route_infers_as_far_as_the_token_of_its_client_goes(
    server: Server, token: str, status: int
) -> None:
    answer, body, _ = ask(server, "/greetings", token)

    assert status == answer
    assert (body == b"7.0 greetings\n") is (status == 200)


@pytest.mark.parametrize(
    ("model", "text"), [("seven", "hello, friend"), ("polite", "good day, friend")]
)
def test_its_backend_runs_models_and_its_step_greets(server: Server, model: str, text: str) -> None:
    for way in ("infer", "generate"):
        status, _, headers = ask(
            server, f"/v2/models/{model}/{way}", document={"inputs": []} if way == "infer" else {}
        )
        assert (200, text) == (status, headers["x-greeting"])

    with grpc.insecure_channel(server.grpc_address) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        request = message("inference.ModelInferRequest")(model_name=model).SerializeToString()
        _, rpc = call.with_call(request, metadata=[("authorization", f"Bearer {TOKEN}")])
        assert text == dict(rpc.trailing_metadata())["x-greeting"]


def test_its_metric_is_on_the_page(server: Server) -> None:
    assert b"greetings_total 2\n" in server.metrics_page(Authorization=f"Bearer {TOKEN}").body


def test_its_process_asks_models_and_is_replaced(server: Server, installed: Path) -> None:
    def greeter() -> dict[str, Any]:
        status = json.loads(ctl(server, installed, "status", "-o", "json"))
        [process] = [p for p in status["processes"] if p["role"] == "add-on:greeting"]
        return dict(process)

    greetings = server.directory / "greetings"
    eventually(lambda: greetings.exists() and greetings.read_text().startswith("hello 7.0"), 60)
    greetings.unlink()
    os.kill(greeter()["pid"], signal.SIGKILL)

    eventually(greetings.exists, 60)
    assert 1 == greeter()["restarts"]


def test_its_option_and_parameter_are_known(
    server: Server, installed: Path, tmp_path: Path
) -> None:
    assert "hello" == json.loads(ctl(server, installed, "config", "-o", "json"))["greeting"]

    for name in ("GREETING", "GRETING"):
        folder = tmp_path / name.lower()
        (folder / "1").mkdir(parents=True)
        own = f'parameters {{ key: "{name}" value {{ string_value: "good day" }} }}'
        (folder / "config.pbtxt").write_text(
            'backend: "constant"\noutput { name: "OUT" data_type: TYPE_FP32 dims: 1 }\n' + own
        )

    words = [sys.executable, "-m", "zmqtriton", "check", str(tmp_path)]
    told = subprocess.run(words, env=_environment(installed), capture_output=True, text=True)
    assert 1 == told.stdout.count("GREETING")
    assert "Did you mean 'GREETING'?" in told.stdout


def test_its_finding_is_told(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "mute" / "1").mkdir(parents=True)
    parameter = 'parameters { key: "GREETING" value { string_value: "" } }'
    (tmp_path / "mute" / "config.pbtxt").write_text(
        'backend: "constant"\noutput { name: "OUT" data_type: TYPE_FP32 dims: 1 }\n' + parameter
    )

    words = [sys.executable, "-m", "zmqtriton", "check", str(tmp_path)]
    told = subprocess.run(words, env=_environment(installed), capture_output=True, text=True)

    assert "config.pbtxt:3:1: warning: GREETING is empty\n" in told.stdout
