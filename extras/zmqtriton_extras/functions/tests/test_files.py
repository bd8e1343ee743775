"""Files of functions, as the reader of repositories and the commands find them."""

from __future__ import annotations

from pathlib import Path

import pytest

from zmqtriton.options import parse
from zmqtriton.reading.model_reading import ModelReader
from zmqtriton.reading.plain import ModelReading
from zmqtriton.repository.scan import ModelPlace
from zmqtriton_extras.functions import backend
from zmqtriton_standard.tools.checking.repositories import check_files
from zmqtriton_standard.tools.run import check_file

SOURCE = "from zmqtriton import model\n\n@model\ndef caption(text: str) -> str: return text\n"
RUNTIME = str(Path(backend.__file__).with_name("model.py"))


def read(place: ModelPlace) -> ModelReading:
    reader = ModelReader(parse(["--model-repository=."]))
    reading = reader.read("caption", place)
    assert isinstance(reading, ModelReading), reading
    return reading


def test_a_file_is_run_by_the_backend_and_the_model_is_the_file(tmp_path: Path) -> None:
    file = tmp_path / "caption.py"
    file.write_text(SOURCE)
    before = read(ModelPlace(tmp_path, tmp_path, file)).blueprint
    file.write_text(SOURCE + "# changed\n")
    after = read(ModelPlace(tmp_path, tmp_path, file)).blueprint

    assert {1: RUNTIME} == {number: each.path for number, each in before.versions.items()}
    assert before.backend is not None
    assert ("functions", "zmqtriton_extras.functions.backend") == (
        before.backend.name,
        before.backend.package,
    )
    assert before.fingerprint != after.fingerprint


def test_a_directory_needs_no_configuration(tmp_path: Path) -> None:
    version = tmp_path / "caption" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(SOURCE)

    blueprint = read(ModelPlace(version.parent, tmp_path)).blueprint

    assert {1: RUNTIME} == {number: each.path for number, each in blueprint.versions.items()}


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (SOURCE, ""),
        ("def caption(text: str) -> str: return text\n", "there is no class TritonPythonModel"),
    ],
)
def test_commands_know_functions(tmp_path: Path, source: str, text: str) -> None:
    file = tmp_path / "caption.py"
    file.write_text(source)

    assert text in check_file(file)
    assert bool(text) == bool(check_files([file]))
