"""The state of a file: what shows a change of it without a look at its content.

Size and time of change alone do not: tools that copy times (`rsync -t`, images that are built
reproducibly) put another file of the same size and time in its place. Such a file has an inode of
its own, or at least a time of its inode's change, which no tool can set.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")


def file_state(status: os.stat_result) -> str:
    """Return a text that is another one if the file has changed, or another is in its place."""
    times = f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
    return times if _numbers_anew(status.st_dev) else f"{times} {status.st_ino}"


@lru_cache(maxsize=64)
def _numbers_anew(device: int) -> bool:
    """True for a file system in user space: most give a file another inode number now and then."""
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = _MOUNTS.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return False
    for line in lines:
        fields, _, type_and_source = line.partition(" - ")
        if fields.split()[2] == number:
            kind = type_and_source.split()[0]
            return kind == "fuse" or kind.startswith("fuse.")
    return False
