"""Honest clients beside attackers: how long each request takes, and whether its answer is right."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tests.faults.mixed_clients import (
    Ask,
    Client,
    GrpcClient,
    HttpClient,
    StreamClient,
    mixed_clients,
)
from tests.support.server import Server
from zmqtriton_addons.tools.benching.results import percentile

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
