"""The program that `zmqtriton-ctl replace` starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from zmqtriton_standard.ctl.replacing import program_words

PYTHON = "/opt/old/bin/python3"


@pytest.mark.parametrize(
    ("script", "named", "expected"),
    [
        # a script that names the Python that has run it
        ("{place}/zmqtriton", "", ["{place}/zmqtriton"]),
        # a Python was named
        ("", "", [PYTHON, "zmqtriton"]),
        # a server of an earlier version
        (None, "", ["{place}/zmqtriton"]),
        (None, "/opt/new/bin/zmqtriton", ["/opt/new/bin/zmqtriton"]),
    ],
)
def test_a_script_is_started_without_the_python_of_the_running_server(
    script: str | None, named: str, expected: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "zmqtriton"
    path.touch(0o755)
    start = {"program": [PYTHON, "zmqtriton"], "directory": str(tmp_path)}
    if script is not None:
        start["script"] = script.format(place=tmp_path)

    words = program_words(start, named)

    assert [each.format(place=tmp_path) for each in expected] == words


@pytest.mark.parametrize("words", [["-m", "zmqtriton"], ["no_program"]])
def test_a_server_of_an_earlier_version_without_a_script_starts_again_as_it_was(
    words: list[str], tmp_path: Path
) -> None:
    (tmp_path / "no_program").touch(0o644)
    start = {"program": [PYTHON, *words], "directory": str(tmp_path)}

    assert [PYTHON, *words] == program_words(start, "")
