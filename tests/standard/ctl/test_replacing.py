"""The program that `zmqtriton-ctl replace` starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from zmqtriton_standard.ctl.replacing import program_words

PYTHON = "/opt/old/bin/python3"


@pytest.mark.parametrize(
    ("running", "script", "named", "expected"),
    [
        # a script that names the Python that has run it
        ("server", {"script": "{place}/server"}, "", ["{place}/server"]),
        # a Python was named
        ("server", {"script": ""}, "", [PYTHON, "server"]),
        # servers of an earlier version: of a script, of a file that is none, and of a module
        ("server", {}, "", ["{place}/server"]),
        ("data", {}, "", [PYTHON, "data"]),
        ("-m server", {}, "", [PYTHON, "-m", "server"]),
        ("server", {}, "/opt/new/bin/zmqtriton", ["/opt/new/bin/zmqtriton"]),
    ],
)
def test_a_script_is_started_without_the_python_of_the_running_server(
    running: str, script: dict[str, str], named: str, expected: list[str], tmp_path: Path
) -> None:
    (tmp_path / "server").touch(0o755)
    (tmp_path / "data").touch(0o644)
    start = {"program": [PYTHON, *running.split()], "directory": str(tmp_path)}

    words = program_words(
        {**start, **{k: v.format(place=tmp_path) for k, v in script.items()}}, named
    )

    assert [each.format(place=tmp_path) for each in expected] == words
