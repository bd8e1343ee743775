"""The commands that read repositories go on without one that does not answer, and name it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.diagnosis.doctor.findings import texts
from tests.support.server import MODELS_DIRECTORY
from tests.support.slow_files import SlowFiles
from zmqtriton.diagnosis.check import run_check
from zmqtriton.diagnosis.examination import examine, list_chapters
from zmqtriton.diagnosis.facts.silence import find_silent
from zmqtriton.diagnosis.facts.target import Target

pytestmark = pytest.mark.slow


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[str]:
    """A repository that does not answer."""
    (tmp_path / "source").mkdir()
    with SlowFiles(tmp_path / "source", tmp_path / "slow") as slow:
        slow.hold()
        yield str(slow.place)


def test_directories_that_answer_or_are_not_there_are_not_silent(tmp_path: Path) -> None:
    assert [] == find_silent([str(tmp_path), "/nowhere"])


def test_a_repository_that_does_not_answer_is_named_by_the_doctor(silent: str) -> None:
    subjects = list_chapters(Target(repositories=[silent, "/nowhere"]))

    of_places = {name: subjects[name] for name in subjects if name.endswith("repositories")}
    printed = texts(examine(of_places))

    assert [
        f"error: the model repository {silent} does not answer: its file system hangs, or is very "
        "slow",
        "error: the model repository /nowhere cannot be used: No such file or directory",
    ] == printed


def test_a_check_names_it_and_goes_on(silent: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = run_check([silent, str(MODELS_DIRECTORY / "add_sub")])

    line = f"error: {silent}: it does not answer within 5 s; its file system may hang"
    assert f"{line}\n1 model, 1 problem, 0 warnings\n" == capsys.readouterr().out
    assert 1 == status
