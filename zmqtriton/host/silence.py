"""Directories that do not answer, as of a network's file system whose server is gone.

Whoever looks into one waits for ever, and cannot even be killed, so a child of this process looks.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable

#: Seconds for a directory to answer; a file system that is well takes milliseconds.
WITHIN_S = 5.0
_LOOK = "import os, sys; os.listdir(sys.argv[1])"
#: Children that were killed and still wait; the kernel ends them when the file system answers.
_unfinished: list[subprocess.Popen[bytes]] = []


def find_silent(paths: Iterable[str], within_s: float = WITHIN_S) -> list[str]:
    """Return the directories that do not answer in time; all are asked together."""
    nothing = subprocess.DEVNULL
    children = {
        path: subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _LOOK, path],
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            start_new_session=True,
        )
        for path in paths
    }
    deadline_s = time.monotonic() + within_s
    silent = []
    for path, child in children.items():
        try:
            child.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            _unfinished.append(child)
            silent.append(path)
    return silent
