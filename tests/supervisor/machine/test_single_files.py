"""Models of single files, read as those of repositories are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.supervisor.readings import Readings
from zmqtriton.options import Options
from zmqtriton.options.values import ModelFile
from zmqtriton.supervisor.actions import LoadOverride
from zmqtriton.supervisor.models.blueprint import Blueprint, ReadFailure

CONFIG = "max_batch_size: 4\ninput [ { name: 'X' data_type: TYPE_FP32 dims: [ 1 ] } ]"


@pytest.fixture
def reader(tmp_path: Path) -> Readings:
    file = tmp_path / "code" / "scale.py"
    file.parent.mkdir()
    file.write_text("")
    (tmp_path / "models").mkdir()
    files = (ModelFile("m", str(file)),)
    return Readings(Options(model_repository=(str(tmp_path / "models"),), model_file=files))


def read(reader: Readings, override: LoadOverride | None = None) -> Blueprint:
    blueprint = reader.read_model("m", override)
    assert isinstance(blueprint, Blueprint), blueprint
    return blueprint


def refused(reader: Readings) -> str:
    failure = reader.read_model("m")
    assert isinstance(failure, ReadFailure), failure
    return failure.reason.text


def test_it_runs_from_where_it_lies(tmp_path: Path, reader: Readings) -> None:
    blueprint = read(reader)

    assert {"m": None} == reader.list_names()
    assert str(tmp_path / "code") == blueprint.directory
    assert str(tmp_path / "code" / "scale.py") == blueprint.versions[1].path


def test_a_configuration_beside_it_is_its_own(tmp_path: Path, reader: Readings) -> None:
    (tmp_path / "code" / "config.pbtxt").write_text(CONFIG)
    assert '"max_batch_size":4' in read(reader).config.replace(" ", "")

    brought = LoadOverride('{"max_batch_size": 7}')

    assert '"max_batch_size":7' in read(reader, brought).config.replace(" ", "")


@pytest.mark.parametrize("field", ["backend", "platform"])
def test_a_configuration_of_another_kind_is_refused(
    tmp_path: Path, reader: Readings, field: str
) -> None:
    (tmp_path / "code" / "config.pbtxt").write_text(f'{field}: "ensemble"')

    assert f"{field} 'ensemble' does not run 'scale.py', which is Python" in refused(reader)


def test_a_name_that_a_repository_has_too_is_refused(tmp_path: Path, reader: Readings) -> None:
    (tmp_path / "models" / "m").mkdir()

    assert "not unique across all model repositories" in refused(reader)


def test_only_a_change_of_code_keeps_the_configuration(tmp_path: Path, reader: Readings) -> None:
    before = read(reader).versions[1]

    (tmp_path / "code" / "helper.py").write_text("# new")

    after = read(reader).versions[1]
    assert before.contents != after.contents
    assert before.fingerprint_without_code == after.fingerprint_without_code != ""
