"""The proxies for which configurations are made: how each checks one, and how it is run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.support.needs import find_tool

KINDS = ("haproxy", "envoy")


def find(kind: str) -> str:
    """The program, which a test cannot do without."""
    return find_tool(kind)


def check_command(kind: str, configuration: Path) -> Sequence[str]:
    path = str(configuration)
    own = {"haproxy": ["-c", "-f", path], "envoy": ["--mode", "validate", "-c", path]}
    return [find(kind), *own[kind]]


def run_command(kind: str, configuration: Path) -> Sequence[str]:
    """The command that runs it until it gets SIGTERM."""
    path = str(configuration)
    own = {
        # with a master, which can be told to reload
        "haproxy": ["-W", "-f", path],
        "envoy": ["--concurrency", "1", "--disable-hot-restart", "-c", path],
    }
    return [find(kind), *own[kind]]
