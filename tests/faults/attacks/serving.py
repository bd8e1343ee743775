"""A server to be attacked, and the processes that attack it."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import find_tool
from tests.faults.attacks import models
from tests.faults.attacks.memory import MIB
from tests.faults.attacks.target import Target
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


def headers_of(target: Target) -> dict[str, str]:
    """Return what honest clients send with each request."""
    return {"authorization": f"Bearer {target.token}"} if target.token else {}


def attack(names: Sequence[str], chance: random.Random, target: Target, seconds: float) -> None:
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
