"""Reads limits and the use of processes from /proc."""

from __future__ import annotations

import math
import os
import re
import resource
from contextlib import suppress
from pathlib import Path

from zmqtriton_addons.tools.doctor.facts import Limits, ProcessUse

_PROC = Path("/proc")
_NAMES = {
    "descriptors": "Max open files",
    "processes": "Max processes",
    "locked_bytes": "Max locked memory",
}


def read_limits(pid: int = 0, proc: Path = _PROC) -> Limits:
    """Read the limits of a process; of a server that this process would start, for 0."""
    if not pid:
        return Limits(
            # the server raises its limit as far as it may
            _number(resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
            _number(resource.getrlimit(resource.RLIMIT_NPROC)[0]),
            _number(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]),
            is_root=not os.geteuid(),
        )
    text = _read(proc / str(pid) / "limits")
    found = {}
    for field, name in _NAMES.items():
        match = re.search(rf"^{name}\s+(\S+)", text, re.MULTILINE)
        if match is not None:
            found[field] = math.inf if match[1] == "unlimited" else float(match[1])
    is_root = _status_field(pid, "Uid", proc).startswith("0")
    return Limits(**found, is_root=is_root)


def read_use(name: str, pid: int, proc: Path = _PROC) -> ProcessUse:
    """Read what a process uses; who is neither its user nor root learns little."""
    descriptors = None
    with suppress(OSError):
        descriptors = len(os.listdir(proc / str(pid) / "fd"))
    swapped = _status_field(pid, "VmSwap", proc).split()
    state = _status_field(pid, "State", proc)[:1]
    return ProcessUse(name, pid, descriptors, int(swapped[0]) * 1024 if swapped else 0, state)


def _status_field(pid: int, name: str, proc: Path) -> str:
    found = re.search(rf"^{name}:\s+(.*)$", _read(proc / str(pid) / "status"), re.MULTILINE)
    return found[1] if found else ""


def _number(limit: int) -> float:
    return math.inf if limit == resource.RLIM_INFINITY else float(limit)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
