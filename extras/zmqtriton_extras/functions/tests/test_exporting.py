"""Exported functions are models of any Triton: a process without the server runs them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.stub import interpreters
from tests.support.server import ROOT
from zmqtriton.main import main
from zmqtriton_extras.functions.tests.test_functions import BATCH, STREAM

load_model = pytest.importorskip("zmqtriton_extras.authoring.testing").load_model

pytestmark = pytest.mark.slow

CHECK = Path(__file__).with_name("system") / "exported_check.py"


def test_an_exported_function_needs_nothing_of_the_server(tmp_path: Path) -> None:
    file = tmp_path / "caption.py"
    file.write_text(BATCH.replace("calls = []", "calls = []\nimport zmqtriton"))

    assert 0 == main(["export", str(file), str(tmp_path / "models")])

    python = interpreters.python_or_skip("3.8")
    command = [python, "-I", "-W", "error", str(CHECK), str(ROOT / "stub")]
    command.append(str(tmp_path / "models" / "caption"))
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ("[[b'net 7 20 1']]\n", "") == (answer.stdout, answer.stderr)


@pytest.mark.parametrize("name", ["caption.py", "model.py"])
def test_our_server_takes_it_as_any_python_model(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text(STREAM.format(word="", hint="Iterator"))

    assert 0 == main(["export", str(file), str(tmp_path / "models")])

    with load_model(tmp_path / "models" / "caption") as model:
        assert "python" == model.config["backend"]
        assert [[0], [1]] == [each["output"].tolist() for each in model.stream(count=np.array([2]))]


MAIN = """
from zmqtriton import model
from words import change, nowhere

@model
def caption(text: str) -> str:
    import late.deep.ends
    return change(text) + late.deep.ends.END
"""
SECOND = """
import beside
try:
    import yaml, nothing.at.all
except ImportError:
    pass

def change(text):
    return beside.change(text)
"""


def test_modules_of_the_project_are_taken_along_and_packages_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "app/caption.py": MAIN,
        "app/words/__init__.py": "from .inner.first import change\nnowhere = 1\n",
        "app/words/inner/__init__.py": "import numpy, os.path\n",
        "app/words/inner/first.py": "from .. import inner\nfrom ..second import change\n",
        "app/words/second.py": SECOND,
        "app/words/other.py": "raise ValueError",
        "app/late/deep/ends.py": "import caption\nEND = '!'\n",
        "beside.py": "def change(text):\n    return text.upper()\n",
    }
    for place, text in files.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text)
    models = tmp_path / "models"

    assert 0 == main(["export", str(tmp_path / "app" / "caption.py"), str(models)])

    said = capsys.readouterr().out
    assert f"{models / 'caption'}\nneeded where it is served: pip install PyYAML nothing\n" == said
    version = models / "caption" / "1"
    copied = {str(each.relative_to(version)) for each in version.rglob("*.py")}
    own = {each for each in copied if not each.startswith("zmqtriton_extras")}
    expected = {each.removeprefix("app/") for each in files} - {"words/other.py"}
    assert {*expected, "model.py"} == own
    shutil.rmtree(tmp_path / "app")
    (tmp_path / "beside.py").unlink()
    with load_model(models / "caption") as model:
        answer = model.infer(text=np.array([b"hi"], np.object_))
        assert [b"HI!"] == answer["output"].tolist()


def test_a_module_with_the_name_of_tritons_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "caption.py"
    source = "from zmqtriton import model as m\nimport model\n@m\ndef a(x: int) -> int: ..."
    file.write_text(source)
    (tmp_path / "model.py").touch()

    assert 1 == main(["export", str(file), str(tmp_path / "models")])

    assert "imports model.py, the name of the file for Triton" in capsys.readouterr().err


def test_what_cannot_be_exported_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, models = tmp_path / "caption.py", tmp_path / "models"

    file.write_text("def caption(): ...")
    assert 1 == main(["export", str(file), str(models)])
    assert "has no function with @model" in capsys.readouterr().err
    file.write_text("from zmqtriton import model\n@model\ndef caption(a) -> str: ...")
    assert 1 == main(["export", str(file), str(models)])
    assert "parameter 'a' needs a hint" in capsys.readouterr().err
    assert not models.exists()
    file.write_text("from zmqtriton import model\n@model\ndef caption(a: str) -> str: ...")
    assert 0 == main(["export", str(file), str(models)])
    assert 1 == main(["export", str(file), str(models)])
    assert "File exists" in capsys.readouterr().err
