"""The memory of processes that the kernel does not limit, read where that costs next to nothing."""

from __future__ import annotations

import os
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


def own_memory_bytes(pid: int, proc: Path = Path("/proc")) -> int:
    """Return what a process and its descendants have for themselves.

    Files and shared memory do not count. Pages that a fork has in common with its parent count in
    both: to tell them apart takes long.
    """
    family = [pid]
    for each in family:
        family += _children(proc / str(each))
    return sum(_own_bytes(proc / str(each)) for each in family)


def _own_bytes(process: Path) -> int:
    try:
        _, resident, shared, *_ = (process / "statm").read_text().split()
    except (OSError, ValueError):
        return 0  # it has ended
    return max(0, int(resident) - int(shared)) * _PAGE


def _children(process: Path) -> list[int]:
    pids = []
    try:
        for thread in (process / "task").iterdir():
            pids += [int(pid) for pid in (thread / "children").read_text().split()]
    except OSError:
        pass  # it has ended, or the kernel has no such file
    return pids
