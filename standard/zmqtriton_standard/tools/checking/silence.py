"""Looks into directories by child processes that can be left behind.

A file system may never answer, as a network's whose server is gone, and a process that waits for it
cannot even end.
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


def begin(*words: str) -> subprocess.Popen[bytes]:
    """Start a child of this Python with these words."""
    return subprocess.Popen(
        [sys.executable, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def output_of(child: subprocess.Popen[bytes], within_s: float) -> bytes | None:
    """Return the output of a child; None if the child does not end in time."""
    try:
        # without a time, communicate() would not even look
        return child.communicate(timeout=within_s if child.poll() is None else None)[0]
    except subprocess.TimeoutExpired:
        child.kill()
        _unfinished.append(child)
        return None


def find_silent(paths: Iterable[str]) -> list[str]:
    """Return the directories that do not answer in time; all are looked into together."""
    children = {path: begin("-I", "-S", "-c", _LOOK, path) for path in paths}
    deadline_s = time.monotonic() + WITHIN_S
    return [
        path
        for path, child in children.items()
        if output_of(child, max(0.0, deadline_s - time.monotonic())) is None
    ]
