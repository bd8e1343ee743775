"""Finds errors in model files as Python source, with a program that only parses them.

A file may be made to exhaust a parser, which can end the process. So the parser runs in another
process, and another process gets the files that follow a fatal one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from zmqtriton_floor import prctl

_CHECKER = Path(__file__).with_name("syntax.py")
#: Number of crashes of the parser after which the remaining files are skipped.
_MAX_CRASHES = 8
_TIMEOUT_S = 120


class SourceFact(NamedTuple):
    """An error in a file's source, or a name that it uses."""

    #: syntax, problem or warning; import, input or output with a name as its text
    kind: str
    line: int
    column: int
    text: str


_UNCHECKED = [
    SourceFact("warning", 0, 0, "the file is not looked into: it is too much for a parser")
]


def check_sources(paths: Sequence[Path]) -> dict[Path, list[SourceFact]]:
    """Return the findings in each of the files."""
    facts: dict[Path, list[SourceFact]] = {}
    for _ in range(_MAX_CRASHES):
        left = [path for path in paths if path not in facts]
        if not left:
            break
        lines = _run_checker(left)
        for path, line in zip(left, lines, strict=False):
            facts[path] = [SourceFact(*finding) for finding in json.loads(line)]
        if len(lines) < len(left):
            facts[left[len(lines)]] = _UNCHECKED
    return {path: facts.get(path, _UNCHECKED) for path in paths}


def _run_checker(paths: Sequence[Path]) -> list[str]:
    """Run the parser; it prints a line for each file that it has read completely."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", str(_CHECKER)],
            # in hexadecimal, because the name of a file may hold anything, even a line's end
            input="".join(f"{os.fsencode(path).hex()}\n" for path in paths),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            preexec_fn=prctl.die_with_parent,
        )
        said = done.stdout
    except subprocess.TimeoutExpired as error:
        said = (error.stdout or b"").decode() if not isinstance(error.stdout, str) else error.stdout
    return [line for line in said.splitlines(keepends=True) if line.endswith("\n")]
