"""Tests of the part of `zmqtriton-ctl env prepare` that needs programs which install."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.standard.ctl.fake_server import run
from tests.standard.environments.test_prepare import wheel
from zmqtriton_standard.ctl.output import LiveLine

pytestmark = pytest.mark.system


@pytest.mark.long(
    "standard/environments/test_prepare.py::test_uvs_last_lines_are_the_reason",
    "standard/environments/test_prepare.py::test_requirements_are_built_once_for_their_content",
)
def test_what_programs_print_is_shown_if_they_fail_or_if_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # on a busy machine a step lasts long enough for a line of its own
    monkeypatch.setattr(LiveLine, "FIRST_S", threading.TIMEOUT_MAX)
    model = tmp_path / "m"
    wheel(model / "wheels")
    (model / "1").mkdir()
    (model / "1" / "model.py").touch()
    (model / "requirements.txt").write_text("--no-index\n--find-links wheels\ngreeting\n")

    def env(*words: str) -> tuple[int, str, str]:
        finished = run("env", "--environment-directory", str(tmp_path / "cache"), *words)
        return finished.exit_code, finished.stdout, finished.stderr

    prepare = ("prepare", "--build-environments", str(model))
    status, ready, quiet = env(*prepare)
    assert (0, "m: ready, ", "") == (status, ready[:10], quiet)

    env("clean")
    status, _, said = env(*prepare, "--verbose")
    assert (0, True) == (status, "greeting==1.0" in said)

    (model / "requirements.txt").write_text("--no-index\nnothing\n")
    status, _, reason = env(*prepare)
    assert (1, True) == (status, "nothing was not found" in reason)
