"""The memory of a server: of each process alone, and what its processes share.

The bound of the processes that clients speak to is exact: what they take before the first attack,
`--client-memory-byte-size` for each kind of them, a tenth more, and an allowance for what an
allocator keeps and for what is on its way between two processes. What they share is measured
apart.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.support.server import Server

MIB = 1 << 20
#: Those that hold what clients send and do not read.
ROLES = ("http", "grpc", "door")
PART, ALLOWANCE_MIB = 1.1, 64
_EVERY_S = 0.25


class Reading(NamedTuple):
    """MiB of a moment."""

    #: Of processes by their roles: pages that are no other's.
    own: dict[str, int]
    #: Segments and other files in memory that the supervisor has.
    shared: int


def max_mib(idle: int, option_mib: int) -> int:
    """Return the bound of one role."""
    return round((idle + option_mib) * PART) + ALLOWANCE_MIB


def _own_kib(pid: int) -> int:
    with suppress(OSError), open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return int(dict(line.split()[:2] for line in file.readlines()[1:])["Pss_Anon:"])
    return 0


def _shared_bytes(supervisor: int) -> int:
    sizes: dict[tuple[int, int], int] = {}
    folder = Path(f"/proc/{supervisor}/fd")
    for name in os.listdir(folder):
        with suppress(OSError):
            if os.readlink(folder / name).startswith("/memfd:"):
                status = os.stat(folder / name)
                sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


class Gauge:
    """Looks several times a second, in a thread, and keeps the peaks."""

    def __init__(self, server: Server) -> None:
        self._pids = server.pids()
        self.newest = self._read()
        self._peak = self.newest
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _read(self) -> Reading:
        own = {role: sum(map(_own_kib, pids)) >> 10 for role, pids in self._pids.items()}
        [supervisor] = self._pids["supervisor"]
        return Reading(own, _shared_bytes(supervisor) // MIB)

    def _run(self) -> None:
        while not self._is_over.wait(_EVERY_S):
            with suppress(OSError):
                self.newest = now = self._read()
                before = self._peak
                own = {role: max(before.own[role], mib) for role, mib in now.own.items()}
                self._peak = Reading(own, max(before.shared, now.shared))

    def take_peak(self) -> Reading:
        """Return the largest of everything since the last call."""
        peak, self._peak = self._peak, self.newest
        return peak

    def __enter__(self) -> Gauge:
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._thread.join()
