"""Each CPython from 3.10 on that is here runs the server as it is installed, by its wheel."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc

from tests.stub import interpreters
from tests.support.clients import infer_inputs, module_of, open_client
from tests.support.needs import find_tool
from tests.support.server import ROOT, Server, free_ports, tensor
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        "ZT_EACH_PYTHON" not in os.environ, reason="make test KIND=pythons runs this, minutes long"
    ),
]

SCRIPTS = Path(__file__).parent
ONES = np.ones((1, 16), np.float32)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The server as it is distributed; from a copy, since setuptools packs what is in build/."""
    folder = tmp_path_factory.mktemp("wheel")
    others = shutil.ignore_patterns(".*", "build", "tests", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT, folder / "source", ignore=others)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    run([*build, str(folder / "source")])
    [path] = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module", params=interpreters.OF_SERVERS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def python(version: str, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter of an environment with the server and what it needs, nothing else."""
    base = interpreters.base_or_skip(version)
    folder = tmp_path_factory.mktemp("python") / "venv"
    uv = find_tool("uv")
    run([uv, "venv", "--quiet", "--python", base, str(folder)])
    run([uv, "pip", "install", "--quiet", "--python", str(folder), str(wheel)])
    return str(folder / "bin" / "python")


def run(command: list[str]) -> str:
    # not here, where Python's -m would find the source
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def other_python(version: str) -> str:
    """The interpreter of an environment of the next version that is here, or the first one."""
    here = [each for each in interpreters.versions_here() if each != version]
    place = interpreters.VERSIONS.index
    newer = [each for each in here if place(each) > place(version)]
    return interpreters.python_or_skip([*newer, *here, version][0])


@pytest.fixture(scope="module")
def server(python: str, version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that has nothing to complain of from its start to its end."""
    directory = tmp_path_factory.mktemp("server")
    server = Server(
        directory / "s",
        models=["add_sub", "doubled", "tokens", "passport"],
        options=["--model-control-mode=explicit", "--load-model=*"],
        python=python,
        environment={"PYTHONWARNINGS": "default,ignore::ResourceWarning"},
    )
    other = Path(other_python(version)).parents[1]
    with (server.add_model("passport", "elsewhere") / "config.pbtxt").open("a") as config:
        path = f'key: "EXECUTION_ENV_PATH" value {{ string_value: "{other}" }}'
        config.write(f"parameters {{ {path} }}\n")
    with server:
        yield server

    assert server.returncode == 0
    complaints = ("Traceback", "Warning")
    assert [] == [
        line for line in server.log_text().splitlines() if any(word in line for word in complaints)
    ]


def passport(server: Server, model: str, text: str) -> str:
    """The answer's text, or the error."""
    _, answer = server.infer_json(model, tensor("IN", "BYTES", [text]))
    outputs = {output["name"]: output["data"][0] for output in answer.get("outputs", ())}
    return str(outputs.get("OUT", answer.get("error")))


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_models_and_ensembles_answer(server: Server, protocol: str) -> None:
    with open_client(server, protocol) as client:
        module = module_of(client)
        sums = client.infer("add_sub", infer_inputs(module, INPUT0=ONES, INPUT1=ONES))
        twice = client.infer("doubled", infer_inputs(module, LEFT=ONES, RIGHT=ONES))

    assert [2.0] * 16 == sums.as_numpy("OUTPUT0")[0].tolist()
    assert [2.0] * 16 == twice.as_numpy("RIGHT_TWICE")[0].tolist()


def test_streams_come_over_http(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    connection.request("POST", "/v2/models/tokens/generate_stream", json.dumps({"COUNT": 3}))
    with connection.getresponse() as response:
        lines = response.read().decode().split("\n\n")
    connection.close()

    events = [json.loads(line.removeprefix("data: ")) for line in lines if line]
    assert ["token0", "token1", "token2"] == [event["TOKEN"] for event in events]


def test_streams_come_over_grpc(server: Server) -> None:
    answers: list[Any] = []
    with tritonclient.grpc.InferenceServerClient(server.grpc_address) as client:
        client.start_stream(lambda result, error: answers.append(error or result))
        inputs = infer_inputs(tritonclient.grpc, COUNT=np.array([3], np.int32))
        client.async_stream_infer("tokens", inputs)
        client.stop_stream()

    assert [0, 1, 2] == [answer.as_numpy("INDEX")[0] for answer in answers]


def test_a_model_that_crashes_comes_back(server: Server) -> None:
    error = passport(server, "passport", "die")
    eventually(lambda: "back" in passport(server, "passport", "back"), 60, "the model is back")

    assert "Stub process 'passport_0_0' is not healthy. (exited with status 3)" in error


def test_ctl_finds_the_server(server: Server, python: str) -> None:
    ctl = [python, "-m", "zmqtriton.ctl.main", "--server", f":{server.http_port}"]

    status = run([*ctl, "status"])

    assert all(model in status for model in ("add_sub", "doubled", "tokens", "passport"))


def test_models_run_on_this_python_and_on_another(server: Server, version: str) -> None:
    [own], [others] = (
        {passport(server, model, "").partition("/")[0]} for model in ("passport", "elsewhere")
    )

    assert version == own
    assert others in interpreters.VERSIONS
    assert own != others or [version] == interpreters.versions_here()


def test_functions_of_a_process_are_bound(python: str, tmp_path: Path) -> None:
    script = tmp_path / "bound.py"
    script.write_bytes((SCRIPTS / "bound.py").read_bytes())

    assert "as expected\n" == run([python, str(script), *map(str, free_ports(3))])


def test_a_server_is_embedded(python: str, tmp_path: Path) -> None:
    script = tmp_path / "embedded.py"
    script.write_bytes((SCRIPTS / "embedded.py").read_bytes())
    models = Server(tmp_path / "s", models=["add_sub", "doubled", "tokens"])

    assert "as expected\n" == run([python, str(script), str(models.repository)])
