"""Models of the server's own user: what they may not read or command all the same."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server import ROOT, Server, tensor
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

#: A user without any power, whose files are those of whoever runs the tests.
_POWERLESS = ["unshare", "--user", "--map-user=1000"]
_ASK = """
import json, sys
from pathlib import Path
from tests.support.server import Server

def may_read(pid):
    try:
        open(f"/proc/{pid}/mem", "rb").close()
    except PermissionError:
        return False
    return True

with Server(Path(sys.argv[1]) / "s", models=["add_sub"], frontends=()) as server:
    found = {role: any(map(may_read, pids)) for role, pids in server.pids().items()}
    assert server.stop(20) == 0
print(json.dumps(found))
"""


def test_a_model_cannot_read_the_memory_of_the_server(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([*_POWERLESS, "true"], check=False).returncode:
        pytest.skip("user namespaces are not allowed here")
    path = os.pathsep.join(str(ROOT / part) for part in (".", "stub", "frontends"))

    finished = subprocess.run(
        [*_POWERLESS, sys.executable, "-c", _ASK, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )

    readable = json.loads(finished.stdout.splitlines()[-1])
    assert {"fork-server", "stub"} == {
        role for role, is_readable in readable.items() if is_readable
    }
    assert {"supervisor", "broker", "http"} < readable.keys()


_READING = """
import os
import numpy as np
import triton_python_backend_utils as pb_utils

KIND = os.environ["BLS_KIND"]

class TritonPythonModel:
    def execute(self, requests):
        if requests[0].inputs()[0].as_numpy()[0] < 0:
            os.environ["AWS_SECRET_ACCESS_KEY"]
        names = pb_utils.Tensor("OUT", np.array(sorted(os.environ), np.object_))
        return [pb_utils.InferenceResponse([names]) for _ in requests]
"""
_CONFIG = """
backend: "python"
input { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] }
output { name: "OUT" data_type: TYPE_STRING dims: [ -1 ] }
"""
_DETACHED = """
import subprocess
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        # in a session of its own, without the environment, its parent dead
        command = requests[0].inputs()[0].as_numpy()[0].decode()
        subprocess.run(["sh", "-c", command], check=True, start_new_session=True)
        out = pb_utils.Tensor("OUT", requests[0].inputs()[0].as_numpy())
        return [pb_utils.InferenceResponse([out]) for _ in requests]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("walls")
    names = ("AWS_SECRET_ACCESS_KEY", "BLS_KIND", "OMP_NUM_THREADS", "SECRET")
    server = Server(
        directory / "s",
        models=["add_sub"],
        options=[
            f"--runtime-directory={directory / 'run'}",
            *("--model-control-mode=explicit", "--load-model=*"),
            *("--model-env=BLS_*", "--log-verbose=1"),
        ],
        environment=dict.fromkeys(names, "1"),
        frontends=(),
    )
    server.write_model("reading", _CONFIG, _READING)
    server.write_model("detached", _CONFIG.replace("FP32", "STRING"), _DETACHED)
    with server:
        yield server


def test_models_get_the_usual_variables_and_those_that_are_named(server: Server) -> None:
    status, answer = server.infer_json("reading", tensor("IN", "FP32", [1.0]))
    _, refused = server.infer_json("reading", tensor("IN", "FP32", [-1.0]))
    text = server.log_text()

    assert status == 200
    names = set(answer["outputs"][0]["data"])
    assert {"PATH", "BLS_KIND", "OMP_NUM_THREADS"} <= names
    assert {"AWS_SECRET_ACCESS_KEY", "SECRET"}.isdisjoint(names)
    # who misses one reads how to get it
    assert "--model-env=AWS_SECRET_ACCESS_KEY passes it" in refused["error"]
    [count] = [line for line in text.splitlines() if "models do not get" in line]
    assert "SECRET" not in count
    [named] = [line for line in text.splitlines() if "only if --model-env names them" in line]
    assert "SECRET" in named.split(": ")[-1]


def test_nothing_that_a_model_starts_commands_the_server(server: Server) -> None:
    run, out = server.directory.parent / "run", server.scratch / "out"
    path = os.pathsep.join(str(ROOT / part) for part in (".", "stub", "frontends"))
    ctl = f"{sys.executable} -m zmqtriton.ctl.main --runtime-directory {run} unload add_sub"
    command = f"(sleep 0.5; env -i PYTHONPATH={path} {ctl} > {out} 2>&1; echo over >> {out}) &"

    assert 200 == server.infer_json("detached", tensor("IN", "BYTES", [command]))[0]

    eventually(lambda: out.exists() and "over" in out.read_text(), 60, "it has tried")
    assert 200 == server.status("/v2/models/add_sub/ready")
    eventually(lambda: "this server, or a model of it, has started it" in server.log_text(), 60)
    done = subprocess.run(ctl.split(), env={**os.environ, "PYTHONPATH": path}, check=False)
    assert 0 == done.returncode
