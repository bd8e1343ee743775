"""The number of Python functions that a plain request enters, which may fall and must not rise."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.support.server import ROOT

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="counted on CPython 3.11"),
    pytest.mark.long(tool="tests/bench/calls.py"),
]

#: Of frontend, broker and stub.
LIMITS = {
    "http binary": (57, 60, 48),
    "http json": (56, 60, 48),
    "grpc unary": (70, 60, 48),
    "grpc stream": (80, 60, 48),
    "http binary 600 KB": (128, 76, 70),
    "grpc 600 KB": (212, 76, 70),
    "shared memory 600 KB": (93, 60, 64),
    "grpc shared memory 600 KB": (109, 60, 64),
}
#: What runs by the clock adds a little.
SLACK = 2

#: A machine that is busy elsewhere wakes a process more often than a request needs.
ATTEMPTS = 8


def count(kind: str = "") -> dict[str, Any]:
    """Return the functions of frontend, broker and stub, and the names of the first, by kind."""
    command = [sys.executable, "-m", "tests.bench.calls", "--json", "--only", kind]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.fixture(scope="module")
def counts() -> dict[str, Any]:
    return count()


@pytest.mark.parametrize("kind", LIMITS)
def test_a_plain_request_enters_no_more_functions_than_it_did(
    counts: dict[str, Any], kind: str
) -> None:
    fewest, _ = counts[kind]
    for _ in range(ATTEMPTS - 1):
        if any(
            counted > limit + SLACK for counted, limit in zip(fewest, LIMITS[kind], strict=True)
        ):
            fewest = [*map(min, fewest, count(kind)[kind][0])]

    for role, counted, limit in zip(
        ("frontend", "broker", "stub"), fewest, LIMITS[kind], strict=True
    ):
        assert counted <= limit + SLACK, f"{role}: python -m tests.bench.calls --list {role}"


@pytest.mark.parametrize(
    ("journey", "kind"), [("plain HTTP", "http binary"), ("gRPC stream", "grpc stream")]
)
def test_a_request_enters_each_step_of_its_journey_as_it_is_drawn(
    counts: dict[str, Any], journey: str, kind: str
) -> None:
    drawing = (ROOT / "ARCHITECTURE.md").read_text("utf-8").partition(f"\n{journey} ")[2]
    steps = re.findall(r"[\w.]+", "".join(drawing.splitlines()[:2]))

    assert 8 == len(steps)
    assert [] == [step for step in steps if not f"{counts[kind][1]}".count(f":{step}'")]
