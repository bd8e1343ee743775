"""`zmqtriton-ctl env` over directories, and with a server that a test plays."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.standard.ctl.fake_server import FakeServer, run
from tests.support.reports import Reports
from zmqtriton_standard.environments.cache import BUILT, EnvironmentCache


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    asks = 'parameters { key: "PYTHON_EXECUTABLE" value { string_value: "VALUE" } }'
    for name, value in (("good", sys.executable), ("bad", "/nowhere/python")):
        (tmp_path / "models" / name / "1").mkdir(parents=True)
        (tmp_path / "models" / name / "1" / "model.py").touch()
        (tmp_path / "models" / name / "config.pbtxt").write_text(asks.replace("VALUE", value))
    return tmp_path / "models"


def env(tmp_path: Path, *words: str) -> tuple[int, str, str]:
    result = run("env", "--environment-directory", str(tmp_path / "cache"), *words)
    return result.exit_code, result.stdout, result.stderr


GOOD = (0, "good: the server's own Python\n", "")
WRONG = "bad: PYTHON_EXECUTABLE '/nowhere/python' must be a program that can be run\n"


def test_a_repository_or_one_model_is_prepared_without_a_server(
    tmp_path: Path, temporary: Path, repository: Path
) -> None:
    assert (1, GOOD[1], WRONG) == env(tmp_path, "prepare", str(repository))
    assert GOOD == env(tmp_path, "prepare", str(repository / "good"))
    as_json = env(tmp_path, "prepare", "--json", str(repository / "good"))[1]
    assert ["good"] == [one["model"] for one in json.loads(as_json)]


def test_models_can_be_named_where_a_server_runs(
    tmp_path: Path, server: FakeServer, repository: Path
) -> None:
    server.answers["status"] = {"repositories": [str(repository)]}

    assert GOOD == env(tmp_path, "prepare", "good")
    assert (1, GOOD[1], WRONG) == env(tmp_path, "prepare")
    assert (1, "", "error: x: must be a directory, or a model of the running server\n") == env(
        tmp_path, "prepare", "x"
    )


def test_without_a_server_a_name_is_nothing(tmp_path: Path, temporary: Path) -> None:
    status, _, said = env(tmp_path, "prepare", "good")

    assert 1 == status
    assert said.startswith("error: good: no such directory, and no running server found")


def test_what_there_is_can_be_listed_and_removed(tmp_path: Path) -> None:
    cache = EnvironmentCache(str(tmp_path / "cache"))
    tree = cache.get_or_create(BUILT, "x", "/m/requirements.txt", lambda tree: None, Reports())

    status, listed, _ = env(tmp_path, "list")
    removed = env(tmp_path, "clean")

    assert 0 == status
    assert "/m/requirements.txt" in listed
    assert str(tree) in listed
    assert (0, "removed 1\n", "") == removed
    assert (0, "Kind\tMade\tSource\tDirectory\n", "") == env(tmp_path, "list")
