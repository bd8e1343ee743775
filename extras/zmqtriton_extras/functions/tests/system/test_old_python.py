"""Functions run in the model's own interpreter: each CPython from 3.8 on, without the server."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.stub import interpreters
from tests.support.server import ROOT

pytestmark = pytest.mark.system

CHECK = Path(__file__).with_name("old_python_check.py")


@pytest.mark.parametrize("version", interpreters.VERSIONS)
def test_functions_run_where_nothing_of_the_server_is(tmp_path: Path, version: str) -> None:
    python = interpreters.python_or_skip(version)
    paths = [str(ROOT / "stub"), str(ROOT / "extras"), str(tmp_path / "caption")]
    command = [python, "-I", "-W", "error", str(CHECK), *paths]

    answer = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (answer.stdout, answer.stderr) == ("as expected\n", "")
