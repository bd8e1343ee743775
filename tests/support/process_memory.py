"""The memory of a server's processes, of these roles or of all, as the kernel tells it."""

from __future__ import annotations

from pathlib import Path

import psutil

from tests.support.server import Server


def pss_mib(server: Server, *roles: str) -> int:
    """Return what processes have for themselves, and their part of what they share."""
    return _sum_mib(server, roles, "pss")


def uss_mib(server: Server, *roles: str) -> int:
    """Return what processes have for themselves alone."""
    return _sum_mib(server, roles, "uss")


def _sum_mib(server: Server, roles: tuple[str, ...], kind: str) -> int:
    pids = server.pids()
    own = [psutil.Process(pid) for role in roles or pids for pid in pids[role]]
    return sum(getattr(process.memory_full_info(), kind) for process in own) >> 20


def segments(pid: int) -> list[tuple[int, str]]:
    """Sizes and rights of the server's shared memory that a process maps; none of the dead."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:
        return []
    rows = [line.split() for line in lines if "memfd:zmqtriton " in line]
    places = [(*place.split("-"), rights) for place, rights, *_ in rows]
    return [(int(end, 16) - int(start, 16), rights) for start, end, rights in places]


def peak_mib(server: Server, role: str) -> int:
    """The most memory that a process of a role has had."""
    statuses = [Path(f"/proc/{pid}/status").read_text() for pid in server.pids()[role]]
    return max(int(text.split("VmHWM:")[1].split()[0]) for text in statuses) >> 10
