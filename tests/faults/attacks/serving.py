"""A server to be attacked, and the processes that attack it."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.conftest import find_tool
from tests.faults.attacks import models
from tests.faults.attacks.honest import Machine
from tests.faults.attacks.memory import MIB, Gauge, Reading
from tests.faults.attacks.target import Target
from tests.faults.mixed_clients import Ask
from tests.support.server import Server

#: What clients may make each kind of process hold.
LIMIT = 256 * MIB
#: Of each process of the server: less than one attack opens.
DESCRIPTORS = 600


@contextmanager
def serving(seed: int, directory: Path) -> Iterator[tuple[Server, Target]]:
    """Serve those who attack and those who do not; seeds that are odd have tokens."""
    options = [
        f"--client-memory-byte-size={LIMIT}",
        "--allow-openai",
        "--zmq-door",
        "--routes",
        f"--runtime-directory={directory / 'r'}",
    ]
    token = ""
    if seed % 2:
        token = models.write_token(directory / "tokens")
        options.append(f"--tokens={directory / 'tokens'}")
    server = Server(directory / "s", models=models.HONEST, options=options)
    prlimit = find_tool("prlimit", package="util-linux")
    server.wrapper = (prlimit, f"--nofile={DESCRIPTORS}:{DESCRIPTORS}")
    models.prepare(server, random.Random(seed))
    with server:
        yield server, Target(server.http_port, server.grpc_port, f"{directory}/r/door", token)


def _attack(names: Sequence[str], chance: random.Random, target: Target, seconds: float) -> None:
    """Run attacks side by side until all have ended."""
    running = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.faults.attacks.one",
                name,
                str(chance.randrange(1 << 30)),
                str(seconds),
                target.written(),
            ]
        )
        for name in names
    ]
    end = time.monotonic() + seconds + 10
    for process in running:
        try:
            process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Round(NamedTuple):
    """One attack, or several at once, and the memory of the server meanwhile and then."""

    names: tuple[str, ...]
    begun: float
    end: float
    peak: Reading
    after: Reading

    @property
    def name(self) -> str:
        return "several together" if len(self.names) > 1 else "".join(self.names) or "nothing"

    def asks(self, all_asks: Sequence[Ask]) -> list[Ask]:
        """Return those that began meanwhile."""
        return [one for one in [*all_asks] if self.begun <= one.begun < self.end]


class Scene(NamedTuple):
    """A server that is attacked, and what watches it."""

    target: Target
    asks: Sequence[Ask]
    machine: Machine
    gauge: Gauge

    def attack(
        self, names: tuple[str, ...], chance: random.Random, seconds: float, rest_s: float
    ) -> Round:
        """Attack, and let the server rest; without a name nothing attacks."""
        self.gauge.take_peak()
        begun = time.monotonic()
        if names:
            _attack(names, chance, self.target, seconds)
        else:
            time.sleep(seconds)
        time.sleep(rest_s)
        return Round(names, begun, time.monotonic(), self.gauge.take_peak(), self.gauge.newest)
