"""The process that listens on a port, for the error of a server that cannot have it.

Reads /proc; what this user may not see stays unknown.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENING = "0A"


def describe_listener(port: int) -> str:
    """Return the process as `process 12 (python3)`, or "" if none can be seen."""
    links = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not links:
        return ""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if not links.isdisjoint(_open_files(pid)):
            with suppress(OSError):
                return f"process {pid} ({Path('/proc', pid, 'comm').read_text().strip()})"
    return ""


def _listening_inodes(port: int) -> Iterator[str]:
    for table in _TABLES:
        with suppress(OSError):
            for line in Path(table).read_text("ascii").splitlines()[1:]:
                columns = line.split()
                if columns[3] == _LISTENING and int(columns[1].rpartition(":")[2], 16) == port:
                    yield columns[9]


def _open_files(pid: str) -> Iterator[str]:
    with suppress(OSError):  # another user's, or it has just ended
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                yield os.readlink(f"/proc/{pid}/fd/{descriptor}")
