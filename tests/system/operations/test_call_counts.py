"""The number of Python functions that a plain request enters, which may fall and must not rise."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.server import ROOT

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="counted on CPython 3.11"),
    pytest.mark.long(tool="tests/bench/calls.py"),
]

#: Of frontend, broker and stub.
LIMITS = {
    "http binary": (59, 60, 48),
    "http json": (58, 60, 48),
    "grpc unary": (72, 60, 48),
    "grpc stream": (80, 60, 48),
    "http binary 600 KB": (130, 76, 70),
    "grpc 600 KB": (212, 76, 70),
    "shared memory 600 KB": (95, 60, 64),
    "grpc shared memory 600 KB": (111, 60, 64),
}
#: What runs by the clock adds a little.
SLACK = 2

#: A machine that is busy elsewhere wakes a process more often than a request needs.
ATTEMPTS = 8


def count(kind: str = "") -> dict[str, list[float]]:
    command = [sys.executable, "-m", "tests.bench.calls", "--json", "--only", kind]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.fixture(scope="module")
def counts() -> dict[str, list[float]]:
    return count()


@pytest.mark.parametrize("kind", LIMITS)
def test_a_plain_request_enters_no_more_functions_than_it_did(
    counts: dict[str, list[float]], kind: str
) -> None:
    fewest = counts[kind]
    for _ in range(ATTEMPTS - 1):
        if any(
            counted > limit + SLACK for counted, limit in zip(fewest, LIMITS[kind], strict=True)
        ):
            fewest = [*map(min, fewest, count(kind)[kind])]

    for role, counted, limit in zip(
        ("frontend", "broker", "stub"), fewest, LIMITS[kind], strict=True
    ):
        assert counted <= limit + SLACK, f"{role}: python -m tests.bench.calls --list {role}"
