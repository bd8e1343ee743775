"""Backends run in the model's own interpreter: each CPython from 3.8 on, without the server."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.stub import interpreters
from tests.support.server import ROOT

pytestmark = pytest.mark.system

CHECK = Path(__file__).with_name("old_python_check.py")


@pytest.mark.parametrize("version", interpreters.VERSIONS)
def test_backends_are_imported_where_nothing_of_the_server_is(version: str) -> None:
    python = interpreters.python_or_skip(version)
    command = [python, "-I", "-W", "error", str(CHECK), str(ROOT / "stub"), str(ROOT / "extras")]

    answer = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (answer.stdout, answer.stderr) == ("as expected\n", "")
