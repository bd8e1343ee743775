"""`zmqtriton new NAME` writes a function and its test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from zmqtriton.main import main

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_name_alone_is_a_function_with_a_test_that_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["new", "shout"])

    assert {"shout.py", "test_shout.py"} == {path.name for path in tmp_path.iterdir()}
    assert "zmqtriton run shout.py --reload" in capsys.readouterr().out
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shout.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout
    assert 0 == main(["check", "shout.py"])


def test_nothing_is_overwritten_and_names_are_those_of_functions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_shout.py").write_text("mine")

    assert 1 == main(["new", "shout"])
    assert "test_shout.py is there already; nothing was written" in capsys.readouterr().err
    for name in ("json", "def", "Shout", "zmqtriton", "docs"):
        assert 1 == main(["new", name])
        assert f"'{name}'" in capsys.readouterr().err
    assert ["test_shout.py"] == [path.name for path in tmp_path.iterdir()]


def test_an_option_makes_it_a_class(tmp_path: Path) -> None:
    assert 0 == main(["new", "shout", "--class"])

    assert (tmp_path / "models" / "shout" / "config.pbtxt").is_file()
