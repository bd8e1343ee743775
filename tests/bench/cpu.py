"""The CPU in seconds that processes have spent so far, and their memory as the kernel has it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from tests.support.server import Server


def of_process(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def by_role(server: Server) -> dict[str, float]:
    """Return that of each role of a server."""
    return {role: sum(map(of_process, pids)) for role, pids in server.pids().items()}


def of_trees(pids: Iterable[int]) -> dict[str, float]:
    """Return that of processes and all below them, as one role."""
    total = 0.0
    for pid in pids:
        below = psutil.Process(pid).children(recursive=True)
        total += sum(of_process(each) for each in (pid, *(process.pid for process in below)))
    return {"all": total}


def kib(pid: int, what: str) -> int:
    """Return a line of smaps_rollup; 0 of a process that has ended."""
    with suppress(OSError):
        text = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii")
        return sum(map(int, re.findall(rf"^{what}:\s+(\d+)", text, re.M)))
    return 0


def pss_mib(pids: Iterable[int]) -> float:
    """Return that of several together; a page that several have counts in part."""
    return sum(kib(pid, "Pss") for pid in pids) / 1024
