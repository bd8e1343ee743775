"""The benchmark of requests runs whole: what it measures is nobody's to judge here."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.bench.run import WORKLOADS
from tests.support.server import ROOT

pytestmark = [pytest.mark.system, pytest.mark.long(tool="tests/bench/run.py")]

#: Every kind of client, and the floor of gRPC.
SIZE = "600 KB"


def test_each_kind_of_client_is_measured() -> None:
    names = [name for name in WORKLOADS if SIZE in name]

    ran = subprocess.run(
        [sys.executable, "-m", "tests.bench.run", "--seconds=0.1", f"--only={SIZE}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert 0 == ran.returncode, ran.stderr
    rows = [line.split() for line in ran.stdout.splitlines() if SIZE in line]
    # Each with one connection and with four; then its rate.
    assert [name.split() for name in names for _ in range(2)] == [
        row[: row.index("KB") + 1] for row in rows
    ]
    assert all(float(row[row.index("KB") + 2]) > 0 for row in rows)
    assert 2 == ran.stdout.count("grpc.aio that echoes")
