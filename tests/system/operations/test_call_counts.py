"""Limits of a plain request in calls, look-ups and objects, which may fall and must not rise."""

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
]

#: Functions, look-ups of attributes and new objects, of frontend, broker and stub.
LIMITS = {
    "http binary": ((39, 332, 88), (56, 683, 95), (38, 365, 93)),
    "http json": ((52, 388, 100), (56, 683, 95), (38, 365, 93)),
    "grpc unary": ((52, 483, 94), (56, 683, 95), (38, 365, 93)),
    "grpc stream": ((70, 583, 97), (56, 683, 95), (38, 365, 93)),
    "http binary 600 KB": ((120, 860, 194), (72, 716, 133), (63, 550, 164)),
    "grpc 600 KB": ((205, 1374, 244), (72, 716, 133), (63, 550, 164)),
    "shared memory 600 KB": ((87, 572, 166), (56, 683, 95), (57, 509, 153)),
    "grpc shared memory 600 KB": ((96, 739, 190), (56, 683, 95), (57, 509, 153)),
}
#: What runs by the clock adds a little; of look-ups as much as a function has.
SLACK = (2, 12, 4)

ROLES = ("frontend", "broker", "stub")

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
def test_a_plain_request_does_no_more_than_it_did(counts: dict[str, Any], kind: str) -> None:
    limits = [[*map(sum, zip(row, SLACK, strict=True))] for row in LIMITS[kind]]
    fewest, _ = counts[kind]
    for _ in range(ATTEMPTS - 1):
        if _beyond(fewest, limits):
            fewest = [[*map(min, *pair)] for pair in zip(fewest, count(kind)[kind][0], strict=True)]

    assert {} == _beyond(fewest, limits), "python -m tests.bench.calls --list ROLE"


def _beyond(counted: list[list[float]], limits: list[list[int]]) -> dict[str, list[float]]:
    """Return the counts of the roles that are above a limit."""
    return {
        role: numbers
        for role, numbers, highest in zip(ROLES, counted, limits, strict=True)
        if any(number > limit for number, limit in zip(numbers, highest, strict=True))
    }


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
