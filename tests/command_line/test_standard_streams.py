"""Standard streams that are closed: what is opened later would get their numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

#: Reports what the three descriptors are, and whether Python has its streams.
_REPORT = """
import json, os, sys
from zmqtriton import standard_output
standard_output.open_closed()
streams = [sys.stdin, sys.stdout, sys.stderr]
places = [os.readlink(f"/proc/self/fd/{number}") for number in range(3)]
inherited = [os.get_inheritable(number) for number in range(3)]
print("unread", file=sys.stdout, flush=True)
print("unread", file=sys.stderr, flush=True)
with open(sys.argv[1], "w") as file:
    json.dump([places, inherited, [each.fileno() for each in streams]], file)
"""


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_null_devices_take_the_place_of_closed_streams(
    tmp_path: Path, closed: tuple[int, ...]
) -> None:
    report, output = tmp_path / "report", tmp_path / "output"
    closing = " ".join(f"{number}>&-" for number in closed)
    command = ["sh", "-c", f'exec "$@" {closing}', "sh", sys.executable, "-c", _REPORT]
    with output.open("wb") as file:
        subprocess.run(
            [*command, str(report)],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=60,
            check=True,
        )

    places, inherited, numbers = json.loads(report.read_text())
    assert [number in closed for number in range(3)] == [place == os.devnull for place in places]
    assert ([True] * 3, [0, 1, 2]) == (inherited, numbers)
    # What is open stays what it is.
    assert output.read_text().count("unread") == 2 - len({1, 2} & set(closed))
