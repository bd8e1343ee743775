"""Files of functions, as the reader of repositories and the commands find them."""

from __future__ import annotations

from pathlib import Path

import pytest

from zmqtriton.diagnosis.rules.repositories import check_files
from zmqtriton.findings import Severity
from zmqtriton.options.parser import parse
from zmqtriton.reading.model_reading import ModelReader
from zmqtriton.reading.plain import ModelReading
from zmqtriton.repository.scan import ModelPlace
from zmqtriton_extras.functions import backend

load_model = pytest.importorskip("zmqtriton_extras.authoring.testing").load_model
check_file = pytest.importorskip("zmqtriton_extras.authoring.run").check_file

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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "text"),
    [
        (SOURCE, ""),
        (
            "def shout(text: str) -> str: return text\nclass Other: ...\n"
            "class Caption:\n    def __call__(self): ...\n",
            "there is no class TritonPythonModel; put @model of zmqtriton above shout, Caption",
        ),
        ("caption = lambda text: text\n", "there is no class TritonPythonModel; 'zmqtriton new"),
    ],
)
def test_commands_know_functions(tmp_path: Path, source: str, text: str) -> None:
    file = tmp_path / "caption.py"
    file.write_text(source)

    assert text in check_file(file)
    assert bool(text) == bool(check_files([file]))


@pytest.mark.slow
def test_a_check_finds_imports_that_are_not_there_and_names_that_are_taken(tmp_path: Path) -> None:
    file = tmp_path / "words.py"
    file.write_text(
        "import json, beside\nimport nothing_of_this_name\nfrom zmqtriton import model\n"
        "@model\ndef docs(text: str) -> str: ...\n@model\ndef fine(text: str) -> str: ...\n"
    )
    (tmp_path / "beside.py").touch()

    refused, warned = check_files([file])

    assert (2, Severity.WARNING) == (warned.line, warned.severity)
    assert "No module named 'nothing_of_this_name'" in warned.text
    assert Severity.ERROR == refused.severity
    assert "/docs is a path of the server: give the function another name, @model(name=…)" == (
        refused.text
    )


def test_a_name_that_is_taken_is_refused_by_the_load(tmp_path: Path) -> None:
    file = tmp_path / "words.py"
    file.write_text(SOURCE.replace("caption", "docs"))

    reading = ModelReader(parse(["--model-repository=."])).read(
        "docs", ModelPlace(tmp_path, tmp_path, file)
    )

    assert isinstance(reading, ModelReading)
    assert "/docs is a path of the server" in str(reading.blueprint.versions[1].problem)


SHOUT = """
from json import loads
def shout(text: str) -> str: ...
yell = lambda text: text
class Caption:
    def __call__(self): ...
class Other: ...
"""


def test_a_load_says_which_functions_lack_their_mark(tmp_path: Path) -> None:
    version = tmp_path / "caption" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(SHOUT)

    text = "no attribute 'TritonPythonModel'; put @model of zmqtriton above shout, yell, Caption$"
    with pytest.raises(AttributeError, match=text), load_model(version.parent):
        pass
