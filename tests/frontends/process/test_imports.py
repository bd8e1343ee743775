"""Imports of processes at their start."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

#: What takes long to be imported, and is imported when a server first needs it.
LATER = ("email", "importlib.metadata", "numpy", "platform", "psutil", "zmq")


@pytest.mark.parametrize(
    ("module", "also"),
    [
        pytest.param(
            "zmqtriton_extras.fleet.announcing.__main__", {"email"}, marks=pytest.mark.addons
        ),
        ("zmqtriton.broker.__main__", set[str]()),
        ("zmqtriton.supervisor.service", set[str]()),
        ("zmqtriton_frontends.grpc_api.__main__", set[str]()),
        pytest.param("zmqtriton_standard.metrics.__main__", {"email"}, marks=pytest.mark.addons),
        # documents of JSON are made of arrays; the rest are Falcon's and gunicorn's
        (
            "zmqtriton_frontends.http_api.__main__",
            {"email", "importlib.metadata", "numpy", "platform"},
        ),
    ],
)
def test_processes_start_without_what_few_servers_need(module: str, also: set[str]) -> None:
    """All of them start at once, with each start of a server."""
    command = [sys.executable, "-c", f"import sys, {module}; print(*sys.modules)"]

    modules = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()

    assert also == set(LATER) & set(modules)
