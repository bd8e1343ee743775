"""Triton's examples of its in-process API, as far as they go without Ray and Kafka.

The script imports `tritonserver` from packages/, as if that was installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.needs import ROOT
from tests.support.server import Server as Repository

pytestmark = pytest.mark.system

_SCRIPT = Path(__file__).parent / "scripts" / "examples.py"


@pytest.mark.row("J61")
def test_the_tutorial_and_the_actors_of_the_examples_do_their_work(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "s", models=["identity", "counting", "string_upper"])
    roots = ("packages/tritonserver", "", "stub", "frontends", "standard", "extras")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(ROOT / root) for root in roots),
    }

    result = subprocess.run(
        [sys.executable, str(_SCRIPT), str(repository.repository)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )

    assert result.returncode == 0, result.stderr
    *lines, last = result.stdout.splitlines()
    assert "('identity', 1): {'name': 'identity', 'version': 1, 'state': 'READY'}" in lines[0]
    assert lines[1] == "[['hello world!']]"
    assert lines[2:4] == [
        "'triton'",
        "{('counting', -1): {'name': 'counting', 'version': -1, 'state': None},",
    ]
    assert lines[-3:] == ["Theodore again", "[200 200 200 200]", "[0, 1, 'done']"]
    assert json.loads(last) == {
        "model": {"name": "string_upper", "version": 1, "state": None, "reason": None},
        "request_id": "",
        "parameters": {},
        "outputs": {"OUTPUT0": [["ONE", "TWO"]]},
        "error": None,
        "classification_label": None,
        "final": True,
    }
