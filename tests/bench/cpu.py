"""The CPU that processes have spent so far, in seconds."""

from __future__ import annotations

from collections.abc import Iterable

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
