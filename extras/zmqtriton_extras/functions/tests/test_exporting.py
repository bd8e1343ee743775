"""Exported functions are models of any Triton: a process without the server runs them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.stub import interpreters
from tests.support.server import ROOT
from zmqtriton.main import main
from zmqtriton_extras.functions.tests.test_functions import BATCH, STREAM
from zmqtriton_standard.tools.testing import load_model

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
