"""Honest clients beside attackers, the memory of the server, and how late the machine is.

The bound of the processes that clients speak to is exact: what they take before the first attack,
`--client-memory-byte-size` for each kind of them, a tenth more, and an allowance for what an
allocator keeps and for what is on its way between two processes. What they share is measured
apart.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tests.bench.cpu import kib
from tests.faults.mixed_clients import (
    Ask,
    Client,
    GrpcClient,
    HttpClient,
    StreamClient,
    mixed_clients,
)
from tests.support.server import Server
from zmqtriton_extras.bench.results import percentile

KINDS: tuple[tuple[type[Client], int], ...] = (
    (HttpClient, 20),
    (GrpcClient, 20),
    (StreamClient, 10),
)
#: Between two requests of a client, on average.
_PAUSE_S = 1.0


@contextmanager
def honest_clients(
    server: Server,
    headers: Mapping[str, str],
    kinds: Sequence[tuple[type[Client], int]] = KINDS,
    pause_s: float = _PAUSE_S,
) -> Iterator[list[Ask]]:
    """Let all of them ask during the block, with pauses; return what became of it."""
    with mixed_clients(server, kinds, headers=headers, pause_s=pause_s) as clients:
        yield clients[0].asks


def percentiles(waits_s: Sequence[float]) -> tuple[float, float, float]:
    """Return the median, p99 and the longest, in milliseconds; zeros of none."""
    ordered = sorted(wait * 1000 for wait in waits_s) or [0.0]
    return percentile(ordered, 50), percentile(ordered, 99), ordered[-1]


_SLEEPER = """
import sys, time
while True:
    begun = time.monotonic()
    time.sleep(0.01)
    late = time.monotonic() - begun - 0.01
    if late > 0.02:
        print(f"{begun} {late}", flush=True)
"""


class Machine:
    """Notes how late a process is that wants next to nothing: that much is nobody's fault here."""

    def __init__(self) -> None:
        self._late: list[tuple[float, float]] = []
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SLEEPER], stdout=subprocess.PIPE, text=True
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            begun, late = line.split()
            self._late.append((float(begun), float(late)))

    def longest_ms(self, begun: float, end: float) -> float:
        """Return the longest delay in that time."""
        late = [late for at, late in [*self._late] if begun <= at < end]
        return max(late, default=0.0) * 1000

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *error: object) -> None:
        with self._process:  # waits for it and closes its output
            self._process.kill()


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
        own = {
            role: sum(kib(pid, "Pss_Anon") for pid in pids) >> 10
            for role, pids in self._pids.items()
        }
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
