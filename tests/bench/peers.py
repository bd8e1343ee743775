"""Other servers beside ours, as processes of a benchmark."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.support.server import free_ports, status_of
from tests.support.waiting import eventually

_START_S, _STOP_S = 60.0, 30.0


@contextmanager
def running(
    command: Sequence[str], health: str, log: Path, environment: Mapping[str, str] = {}
) -> Iterator[int]:
    """Run a server until the end of the block, and yield its process when the address answers."""
    variables = {**os.environ, **environment}
    with log.open("wb") as output:
        process = psutil.Popen(command, env=variables, stdout=output, stderr=subprocess.STDOUT)
    try:
        eventually(lambda: process.poll() is not None or status_of(health) == 200, _START_S, health)
        assert process.poll() is None, log.read_text("utf-8", "replace")
        yield process.pid
    finally:
        # Some leave their workers behind.
        below = process.children(recursive=True) if process.poll() is None else []
        process.terminate()
        _, alive = psutil.wait_procs([process, *below], _STOP_S)
        for each in alive:
            each.kill()
        process.wait(_STOP_S)


@contextmanager
def triton(
    command: str, models: Path, environment: Mapping[str, str] = {}
) -> Iterator[tuple[int, int]]:
    """Run Triton over a repository, and yield its port of HTTP and its process.

    The command is as for tests/conformance/record.py.
    """
    ports = free_ports(3)
    words = [*shlex.split(command), "run", str(models), *map(str, ports)]
    health = f"http://127.0.0.1:{ports[0]}/v2/health/ready"
    variables = {"TRITON_MODE": "", **environment}
    with running(words, health, models.with_suffix(".log"), variables) as pid:
        yield ports[0], pid
