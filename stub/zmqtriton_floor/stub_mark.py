"""A mark in the environment of every stub, which identifies the processes that its model starts.

They may leave its process group and session, but hardly ever its environment. The mark names the
server, by its runtime directory, and the stub, by its serial number.
"""

from __future__ import annotations

import ctypes
import os
from typing import Iterator

from zmqtriton_floor import prctl

VARIABLE = "ZMQTRITON_STUB"
_PREFIX = VARIABLE.encode() + b"="
#: Beside the directory: a separator and the digits of any serial number.
_ROOM = 24


def mark(directory: str, serial: int) -> str:
    """Return the variable of a stub, which has room for the marks of those that it forks."""
    return f"{directory}:{serial}" + " " * _ROOM


def overwrite(text: str) -> None:
    """Write the mark over the placeholder in this process's memory, and into os.environ.

    Other processes see that memory in /proc, and child programs inherit os.environ.
    """
    os.environ[VARIABLE] = text
    start = prctl.layout().env_start
    area = ctypes.string_at(start, prctl.layout().env_end - start)
    at = area.find(b"\0" + _PREFIX) + 1 or (0 if area.startswith(_PREFIX) else -1)
    if at < 0:
        return
    at += len(_PREFIX)
    room = area.index(b"\0", at) - at
    ctypes.memmove(start + at, os.fsencode(text)[:room].ljust(room), room)


def read(pid: int) -> tuple[str, int] | None:
    """Return directory and serial of the stub that a process descends from; None without one."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
    except OSError:
        return None  # dead, or another user's
    marks = (entry for entry in environment.split(b"\0") if entry.startswith(_PREFIX))
    directory, _, serial = os.fsdecode(next(marks, _PREFIX)[len(_PREFIX) :]).strip().rpartition(":")
    return (directory, int(serial)) if serial.isdigit() else None


def marked_processes(directory: str) -> Iterator[int]:
    """Iterate over all processes of this machine that descend from stubs of a server."""
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        origin = read(pid)
        if origin is not None and origin[0] == directory:
            yield pid
