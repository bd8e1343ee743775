"""Advice on directories that are no repositories."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repository.test_scan import make_model
from zmqtriton.repository.scan import repository_hint, scan_model
from zmqtriton_floor.errors import InternalError


@pytest.mark.parametrize("file", ["config.pbtxt", "model.py", "1/model.py"])
def test_a_model_is_no_repository(tmp_path: Path, file: str) -> None:
    path = tmp_path / "m" / file
    path.parent.mkdir(parents=True)
    path.touch()

    assert (
        f"'{tmp_path}/m' looks like a model, not like a directory of models; "
        f"did you mean --model-repository={tmp_path}?"
    ) == repository_hint(tmp_path / "m")


def test_a_directory_without_models_is_named(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "README.md").touch()

    assert f"there is no model in '{tmp_path}'" == repository_hint(tmp_path)


@pytest.mark.parametrize("name", ["m", "7"])
def test_a_repository_needs_no_advice(tmp_path: Path, name: str) -> None:
    make_model(tmp_path, name)

    assert "" == repository_hint(tmp_path)


def test_what_is_not_there_is_somebody_elses_error(tmp_path: Path) -> None:
    with pytest.raises(InternalError):
        repository_hint(tmp_path / "gone")


def test_a_tilde_that_no_shell_has_seen_is_told() -> None:
    with pytest.raises(InternalError, match="failed to stat file ~/models: no shell has"):
        repository_hint(Path("~/models"))


def test_a_model_file_outside_of_a_version_is_told(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.py").touch()

    model = scan_model(tmp_path / "m", tmp_path)

    expected = (
        f"'{tmp_path}/m/model.py' must lie in the directory of a version: '{tmp_path}/m/1/model.py'"
    )
    assert (expected,) == model.warnings
    (tmp_path / "m" / "1").mkdir()
    assert () == scan_model(tmp_path / "m", tmp_path).warnings
