"""The table of files by CPU."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.needs import ROOT

pytestmark = pytest.mark.slow


def test_where_no_test_runs_the_reason_is_told() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--durations-files=3", "tests/session/none.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )

    assert 4 == ended.returncode
    assert "file or directory not found: tests/session/none.py" in ended.stderr
    assert "INTERNALERROR" not in ended.stdout
    assert "0 tests  all files" in ended.stdout
