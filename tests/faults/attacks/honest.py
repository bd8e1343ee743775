"""Honest clients beside attackers: how long each request takes, and whether its answer is right."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from tests.faults.mixed_clients import RIGHT, Client, GrpcClient, HttpClient, StreamClient
from tests.support.server import Server
from zmqtriton_addons.tools.benching.results import percentile

KINDS: tuple[tuple[type[Client], int], ...] = (
    (HttpClient, 20),
    (GrpcClient, 20),
    (StreamClient, 10),
)
#: Between two requests of a client, on average.
_PAUSE_S = 1.0


class Ask(NamedTuple):
    """One request."""

    kind: type[Client]
    begun: float
    wait_s: float
    #: "right", or what went wrong.
    outcome: str


class Honest:
    """One client in a thread."""

    def __init__(self, client: Client, asks: list[Ask], pause_s: float) -> None:
        self.client = client
        self._asks = asks
        self._pause_s = pause_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(random.uniform(0, 2 * self._pause_s)):
            begun = time.monotonic()
            try:
                outcome = self.client.ask()
                if outcome != RIGHT:
                    outcome = self.client.reason or outcome
            except Exception as error:  # noqa: BLE001 - whatever it is, it is not right
                outcome = f"{type(error).__name__}: {error}"
                self.client.close()
            wait_s = time.monotonic() - begun
            self._asks.append(Ask(type(self.client), begun, wait_s, outcome))

    def stop(self) -> None:
        self._is_over.set()

    def join(self) -> None:
        self._thread.join(120)
        assert not self._thread.is_alive(), f"{self.client.prefix} has no answer"
        self.client.close()


@contextmanager
def honest_clients(
    server: Server,
    headers: dict[str, str],
    kinds: Sequence[tuple[type[Client], int]] = KINDS,
    pause_s: float = _PAUSE_S,
) -> Iterator[list[Ask]]:
    """Let all of them ask during the block, with pauses; return what became of it."""
    asks: list[Ask] = []
    clients = []
    for kind, count in kinds:
        for number in range(count):
            client = kind(server, number)
            client.headers = headers
            clients.append(Honest(client, asks, pause_s))
    try:
        yield asks
    finally:
        for each in clients:
            each.stop()
        for each in clients:
            each.join()


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
        assert self._process.stdout is not None
        for line in self._process.stdout:
            begun, late = line.split()
            self._late.append((float(begun), float(late)))

    def longest_ms(self, begun: float, end: float) -> float:
        """Return the longest delay in that time."""
        late = [late for at, late in [*self._late] if begun <= at < end]
        return max(late, default=0.0) * 1000

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
