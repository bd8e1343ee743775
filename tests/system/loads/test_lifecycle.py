"""A server's view of its repositories: which models, which versions, in which words."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.stamps import control_model
from tests.support.server import MODELS_DIRECTORY, Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

_HANGS = """
import time
class TritonPythonModel:
    def initialize(self, args): time.sleep(3600)
    def execute(self, requests): return []
"""
_PYTHON = 'backend: "python"\n'


def _entries(server: Server, model: str) -> list[dict[str, Any]]:
    return [
        entry
        for entry in server.request_json("/v2/repository/index", {})[1]
        if entry["name"] == model
    ]


def _write(folder: Path, source: str, config: str = _PYTHON) -> None:
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(config)
    (folder / "1" / "model.py").write_text(source)


def _prepare(server: Server, more: Path) -> None:
    many = server.add_model("add_sub", "many")
    for name in ("01", "python_env", "1abc", "warmup", "configs", "3"):
        shutil.copytree(many / "1", many / name)
    server.add_model("add_sub", "unasked")
    server.add_model("add_sub", "dup")
    shutil.copytree(server.repository / "dup", more / "dup")
    (server.repository / "empty").mkdir()
    (server.repository / "nover").mkdir()
    (server.repository / "nover" / "config.pbtxt").write_text(_PYTHON)
    _write(server.repository / "hanging", _HANGS)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two repositories, one model in both; a start-up model that there is not."""
    directory = tmp_path_factory.mktemp("lifecycle")
    more = directory / "more"
    options = [
        f"--model-repository={more}",
        f"--runtime-directory={directory / 'run'}",
        "--model-control-mode=explicit",
        "--load-model=add_sub",
        "--load-model=missing",
        "--exit-on-error=false",
    ]
    server = Server(directory / "s", ["add_sub"], options=options, frontends=())
    _prepare(server, more)
    server.launch()
    try:
        eventually(lambda: server.status("/v2/health/live") == 200, 60, "live")
        yield server
    finally:
        assert 0 == server.stop()


@pytest.mark.row("F03", "F16", "F42")
def test_a_server_that_goes_on_is_alive_with_what_could_be_loaded(server: Server) -> None:
    log = server.log_text()

    assert "failed to poll model 'missing': model not found in any model repository." in log
    assert "Internal: failed to load all models" in log
    assert 200 == server.status("/v2/health/live")
    assert 200 == server.status("/v2/models/add_sub/ready")
    assert [{"name": "unasked"}] == _entries(server, "unasked"), "nobody has asked for it"


@pytest.mark.row("F04")
def test_a_name_in_two_repositories_is_nobody_s(server: Server) -> None:
    reason = "model appears in two or more repositories"
    text = "failed to load 'dup', failed to poll from model repository"

    assert [{"name": "dup", "state": "UNAVAILABLE", "reason": reason}] == _entries(server, "dup")
    status, said = control_model(server, "load", "dup")
    assert (500, True) == (status, said.startswith(text))
    complaint = "failed to poll model 'dup': not unique across all model repositories"
    eventually(lambda: complaint in server.log_text(), 60)


@pytest.mark.row("F05", "F07", "F13")
def test_versions_are_whole_numbers_and_loads_are_told(server: Server) -> None:
    assert (200, "") == control_model(server, "load", "many")

    last = "successfully loaded 'many'"
    log = eventually(lambda: text if last in (text := server.log_text()) else "", 60)
    for name, why in (
        ("01", "which contains leading zeros in its directory name"),
        ("python_env", "which fails to convert to integral number"),
        ("1abc", "which fails to convert to integral number"),
    ):
        assert f"ignore version directory '{name}' {why}" in log
    assert "'warmup'" not in log
    assert "'configs'" not in log
    assert [("3", "READY")] == [(e["version"], e["state"]) for e in _entries(server, "many")]
    assert "loading: many:3" in log

    pids = server.stub_pids("many")
    assert (200, "") == control_model(server, "load", "many")
    assert pids == server.stub_pids("many"), "nothing has changed"

    assert (200, "") == control_model(server, "unload", "many")
    eventually(lambda: "successfully unloaded 'many' version 3" in server.log_text(), 30, "log")
    unloaded = {"name": "many", "version": "3", "state": "UNAVAILABLE", "reason": "unloaded"}
    assert [unloaded] == _entries(server, "many")


@pytest.mark.row("F15")
def test_what_cannot_be_loaded_says_why(server: Server) -> None:
    status, said = control_model(server, "load", "nover")
    lacks = "at least one version must be available under the version policy of model 'nover'"
    lacks += ". A version is a directory such as nover/1, and version_policy may leave it out"
    assert (400, f"load failed for model 'nover': {lacks}\n") == (status, said)
    assert 400 == server.status("/v2/health/ready")
    control_model(server, "unload", "nover")

    status, said = control_model(server, "load", "empty")
    text = "failed to load 'empty', failed to poll from model repository"
    assert (500, True) == (status, said.startswith(text))


@pytest.mark.row("F08")
def test_a_load_that_hangs_holds_up_nobody_and_an_unload_ends_it(server: Server) -> None:
    answers: list[tuple[int, str]] = []
    asking = threading.Thread(
        target=lambda: answers.append(control_model(server, "load", "hanging"))
    )
    asking.start()
    eventually(lambda: server.stub_pids("hanging"), 30, "its stub")

    assert "LOADING" == _entries(server, "hanging")[0]["state"]
    assert (200, "") == control_model(server, "load", "many")
    assert 200 == server.status("/v2/models/add_sub/ready")
    assert not answers

    assert (200, "") == control_model(server, "unload", "hanging")
    asking.join(30)
    ((status, text),) = answers
    assert (503, True) == (status, "version 1 is at UNAVAILABLE state: unloaded;" in text)
    eventually(lambda: not server.stub_pids("hanging"), 30, "its end")


@pytest.mark.row("F22")
def test_repositories_are_added_and_taken_away_by_command(server: Server, tmp_path: Path) -> None:
    shutil.copytree(MODELS_DIRECTORY / "add_sub", tmp_path / "late")
    run = server.directory.parent / "run"
    program = [sys.executable, "-m", "zmqtriton.ctl.main", "--runtime-directory", str(run)]

    def ctl(what: str) -> subprocess.CompletedProcess[str]:
        words = [*program, "repository", what, str(tmp_path)]
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)

    added = ctl("register")
    assert (0, True) == (added.returncode, str(tmp_path) in added.stdout.split()), added.stderr
    assert (200, "") == control_model(server, "load", "late")
    assert f"error: model repository '{tmp_path}' has already been registered" in (
        ctl("register").stderr
    )

    assert 0 == ctl("unregister").returncode
    assert 200 == server.status("/v2/models/late/ready"), "what was loaded stays"
    assert "repository not found" in ctl("unregister").stderr
    control_model(server, "unload", "late")
