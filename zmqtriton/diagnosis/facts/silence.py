"""Looks into directories by child processes that can be left behind.

The file system of a lost server may never answer, and a process that waits for it cannot even be
killed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from functools import partial

#: Seconds for a directory to answer; a file system that is well takes milliseconds.
WITHIN_S = 5.0
_LOOK = "import os, sys; os.listdir(sys.argv[1])"
#: Children that were killed and still wait; the kernel ends them when the file system answers.
_unfinished: list[subprocess.Popen[bytes]] = []


def output_within(within_s: float, *words: str) -> bytes | None:
    """Run the server's Python with these words; return the output, or None if it takes too long."""
    child = subprocess.Popen(
        [sys.executable, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return child.communicate(timeout=within_s)[0]
    except subprocess.TimeoutExpired:
        child.kill()
        _unfinished.append(child)
        return None


def find_silent(paths: Iterable[str]) -> list[str]:
    """Return the directories that do not answer in time."""
    look = partial(output_within, WITHIN_S, "-I", "-S", "-c", _LOOK)
    return [path for path in paths if look(path) is None]
