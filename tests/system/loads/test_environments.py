"""One server, models on several Pythons: a directory, an archive and requirements, made ahead."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.stub import interpreters
from tests.support import stub_user
from tests.support.server import Server, tensor
from tests.support.waiting import eventually
from tests.support.wheels import write_wheel
from tests.system.shared_server import SharedServer

pytestmark = [pytest.mark.system, pytest.mark.as_nobody]

OWN = "{}.{}".format(*sys.version_info)
_HANGS = "import time; time.sleep(600)"
ENSEMBLE = """
platform: "ensemble"
input [ { name: "IN" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_STRING dims: [ 1 ] } ]
ensemble_scheduling { step [ STEPS ] }
"""
STEP = """{{ model_name: "{}" model_version: -1
    input_map {{ key: "IN" value: "{}" }} output_map {{ key: "OUT" value: "{}" }} }}"""


def configure(model: Path, **parameters: str) -> None:
    with (model / "config.pbtxt").open("a") as config:
        for name, value in parameters.items():
            config.write(f'parameters {{ key: "{name}" value {{ string_value: "{value}" }} }}\n')


def pack(python: str, archive: Path, folder: Path) -> None:
    """A virtual environment without a package; its bin/python leads to the interpreter outside."""
    subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True)
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(folder, ".")


def ctl(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "zmqtriton.ctl.main", *words]
    if stub_user.EVERYWHERE:
        command = stub_user.within_reach(command)
    return subprocess.run(command, capture_output=True, text=True, check=False)


def env(cache: Path, *words: str) -> subprocess.CompletedProcess[str]:
    user = [f"--stub-user={stub_user.EVERYWHERE}"] if stub_user.EVERYWHERE else []
    return ctl("env", "--environment-directory", str(cache), *user, *words)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("environments")
    # the oldest and the newest that are here; the third is the server's own
    old = interpreters.python_or_skip(interpreters.versions_here()[0])
    cache = home / "cache"
    (home / "startup").mkdir()
    (home / "startup" / "sitecustomize.py").write_text("import sys\nsys.customized = 'yes'\n")
    (home / "empty").mkdir()
    (home / "empty").chmod(0o777)
    server = Server(
        home / "server",
        options=[
            f"--environment-directory={cache}",
            "--model-control-mode=explicit",
            *(f"--load-model={name}" for name in ("old", "packed", "built", "all")),
        ],
        # Whatever would need the network fails.
        environment={
            "PYTHONPATH": str(home / "startup"),
            "UV_OFFLINE": "1",
            "UV_CACHE_DIR": str(home / "empty"),
        },
        frontends=(),
    )
    configure(
        server.add_model("passport", "old"),
        EXECUTION_ENV_PATH=os.path.dirname(os.path.dirname(old)),
    )
    model = server.add_model("passport", "packed")
    pack(sys.executable, model / "env.tar.gz", home / "venv")
    configure(model, EXECUTION_ENV_PATH="$$TRITON_MODEL_DIRECTORY/env.tar.gz")
    model = server.add_model("passport", "built")
    write_wheel(model / "wheels", "greeting", "TEXT = 'hello'\n")
    (model / "requirements.txt").write_text("--find-links wheels\nnumpy>=2\ngreeting==1.0\n")
    newest = interpreters.versions_here()[-1]
    configure(model, PYTHON_REQUIREMENTS="yes", PYTHON_EXECUTABLE=f"python{newest}")
    names = [("old", "IN", "a"), ("packed", "a", "b"), ("built", "b", "OUT")]
    steps = ",".join(STEP.format(*name) for name in names)
    server.write_model("all", ENSEMBLE.replace("STEPS", steps))

    if stub_user.EVERYWHERE:
        stub_user.open_up(home)
    prepared = env(cache, "prepare", str(server.repository))
    assert 0 == prepared.returncode, prepared.stdout + prepared.stderr
    with server:
        yield server


def ask(server: Server, model: str, text: str = "") -> dict[str, Any]:
    status, answer = server.infer_json(model, tensor("IN", "BYTES", [text]), within_s=120)
    if status != 200:
        return {"error": answer["error"]}
    return {output["name"]: output["data"][0] for output in answer["outputs"]}


def facts(server: Server, model: str) -> dict[str, Any]:
    return json.loads(ask(server, model)["FACTS"])


@pytest.mark.long(
    "system/model_api/test_instances_surroundings.py::test_instances_of_one_load_run_in_the_model_s_environment",
    "standard/environments/test_prepare.py::test_a_python_like_the_servers_gets_copies_of_what_it_has",
)
@pytest.mark.row("B11", "B13")
def test_several_pythons_and_numpys_serve_beside_each_other(server: Server) -> None:
    stamps = {model: ask(server, model)["OUT"] for model in ("old", "packed", "built")}

    oldest, *_, newest = interpreters.versions_here() * 2
    assert {"old": oldest, "packed": OWN, "built": newest} == {
        model: stamp.partition("/")[0] for model, stamp in stamps.items()
    }
    assert "2" == stamps["built"].partition("/")[2]
    assert " ".join(["x", *stamps.values()]) == ask(server, "all", "x")["OUT"]
    assert facts(server, "built")["greeting"]
    # The cache was full, and there was no network.
    for model in stamps:
        folder = re.escape(str(server.repository / model))
        made = f"(Building an environment for|Extracting Python execution env) {folder}/"
        assert not re.search(made, server.log_text())


@pytest.mark.parametrize(
    "end",
    [
        Server.kill,
        pytest.param(
            Server.stop,
            marks=pytest.mark.long(
                "system/loads/test_environments.py::test_what_is_being_prepared_ends_with_the_server",
                "supervisor/models/test_preparations.py::test_the_server_can_stop_meanwhile",
            ),
        ),
    ],
)
def test_what_is_being_prepared_ends_with_the_server(
    tmp_path: Path, end: Callable[[Server], object]
) -> None:
    """The search for leaks behind each test finds what goes on."""
    server = Server(
        tmp_path / "s", options=[f"--environment-directory={tmp_path}/cache"], frontends=()
    )
    model = server.add_model("passport")
    with tarfile.open(model / "env.tar.gz", "w:gz") as archive:
        for name, text in (
            ("bin/activate", ""),
            ("bin/python", f'#!/bin/sh\necho it hangs; {sys.executable} -c "{_HANGS}"'),
            ("bin/conda-unpack", ""),
        ):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text), 0o755
            archive.addfile(member, io.BytesIO(text.encode()))
    configure(model, EXECUTION_ENV_PATH="$$TRITON_MODEL_DIRECTORY/env.tar.gz")
    server.launch()
    try:
        eventually(lambda: "it hangs" in server.log_text(), 30, "it is being prepared")
    finally:
        end(server)

    assert not list((tmp_path / "cache").glob("archives/*/ready"))


@pytest.mark.row("A30", "B18")
def test_the_last_lines_before_a_crash_are_in_the_log_under_the_instances_name(
    shared: SharedServer,
) -> None:
    shared.load("passport")

    answer = ask(shared, "passport", "die")
    eventually(lambda: "OUT" in ask(shared, "passport"), 30, "the model is back")

    assert "Stub process 'passport_0_0' is not healthy. (exited with status 3)" in answer["error"]
    lines = [line for line in shared.log_text().splitlines() if "the last " in line]
    assert [True, True] == ["passport_0_0:" in line for line in lines]


@pytest.mark.long(
    "standard/ctl/test_ctl.py::test_what_there_is_can_be_listed_and_removed",
    "standard/environments/test_cache.py::test_nothing_is_cleaned_while_a_server_uses_it",
)
def test_a_running_servers_environments_are_listed_and_not_cleaned(server: Server) -> None:
    cache = server.directory.parent / "cache"

    listed = env(cache, "list")
    cleaned = env(cache, "clean")

    assert {"archives", "built", "support"} <= {
        line.split()[0] for line in listed.stdout.splitlines()
    }
    assert (1, True) == (cleaned.returncode, "a running server uses" in cleaned.stderr)
    assert OWN == ask(server, "packed")["OUT"].partition("/")[0]
