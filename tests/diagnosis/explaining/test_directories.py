"""The directories of models, and a file system that does not answer."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.server import MODELS_DIRECTORY
from tests.support.slow_files import SlowFiles
from zmqtriton.diagnosis.facts.directories import Directories

#: A busy machine takes its time.
LONG_S = 60.0


def test_directories_that_can_be_read_are_told(tmp_path: Path) -> None:
    directories = Directories([str(tmp_path), str(MODELS_DIRECTORY)])

    assert ([str(MODELS_DIRECTORY / "add_sub")], []) == directories.check("add_sub", LONG_S)
    assert [] == directories.silent


def test_errors_in_them_are_told(tmp_path: Path) -> None:
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong/config.pbtxt").write_text("max_batch_size: one")

    places, problems = Directories([str(tmp_path)]).check("wrong", LONG_S)

    assert [f"{tmp_path}/wrong"] == places
    assert f"{tmp_path}/wrong/config.pbtxt:1:17" == problems[0].place


def test_nobody_waits_twice_for_a_file_system_that_does_not_answer(tmp_path: Path) -> None:
    shutil.copytree(MODELS_DIRECTORY / "add_sub", tmp_path / "source" / "add_sub")
    with SlowFiles(tmp_path / "source", tmp_path / "slow") as slow:
        slow.hold()
        directories = Directories([str(slow.place)])

        assert [([], []), ([], [])] == [directories.check("add_sub", 2.0) for _ in range(2)]
        assert [str(slow.place)] == directories.silent
