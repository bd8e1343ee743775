"""A server's view of its repositories: which models, which versions, in which words."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.stamps import control_model
from tests.standard.ctl.system.commands import ctl
from tests.support.server import MODELS_DIRECTORY, Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system


def _entries(server: Server, model: str) -> list[dict[str, Any]]:
    return [
        entry
        for entry in server.request_json("/v2/repository/index", {})[1]
        if entry["name"] == model
    ]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a start-up model that there is not."""
    directory = tmp_path_factory.mktemp("lifecycle")
    options = [
        f"--runtime-directory={directory / 'run'}",
        "--model-control-mode=explicit",
        "--load-model=add_sub",
        "--load-model=missing",
        "--exit-on-error=false",
    ]
    server = Server(directory / "s", ["add_sub"], options=options, frontends=())
    server.add_model("add_sub", "unasked")
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


@pytest.mark.row("F22")
def test_repositories_are_added_and_taken_away_by_command(server: Server, tmp_path: Path) -> None:
    shutil.copytree(MODELS_DIRECTORY / "add_sub", tmp_path / "late")
    register, unregister = (
        ("repository", what, str(tmp_path)) for what in ("register", "unregister")
    )

    added = ctl(server, *register)
    assert (0, True) == (added.exit_code, str(tmp_path) in added.stdout.split()), added.stderr
    assert (200, "") == control_model(server, "load", "late")
    assert f"error: model repository '{tmp_path}' has already been registered" in (
        ctl(server, *register).stderr
    )

    assert 0 == ctl(server, *unregister).exit_code
    assert 200 == server.status("/v2/models/late/ready"), "what was loaded stays"
    assert "repository not found" in ctl(server, *unregister).stderr
    control_model(server, "unload", "late")
