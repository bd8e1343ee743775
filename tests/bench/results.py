"""Figures that are kept with the machine and the commit, so that they can be found again."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

import psutil

from tests.support.server import ROOT

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """Return what the figures depend on besides the code."""
    cpuinfo = Path("/proc/cpuinfo").read_text("utf-8")
    models = [line.partition(":")[2] for line in cpuinfo.splitlines() if "model name" in line]
    return {
        "cpu": models[0].strip() if models else platform.machine(),
        "cores": psutil.cpu_count(),
        "kernel": platform.release(),
        "python": sys.version.split()[0],
        "build": _build(),
    }


def _build() -> str:
    """Return how Python was built: without PGO and LTO the server is slower by 6 to 20 %."""
    if sys.base_prefix == "/usr":
        return "the distribution's"  # which is optimised, and does not say so
    options = str(sysconfig.get_config_var("CONFIG_ARGS"))
    return "optimised" if "--enable-optimizations" in options else "not optimised"


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return made.stdout.strip()


def last(kind: str) -> list[dict[str, Any]]:
    """Return the rows that were saved last; none if there are none."""
    files = sorted(RESULTS.glob(f"*-{kind}.json"))
    if not files:
        return []
    print(f"last: {files[-1].stem}")
    return json.loads(files[-1].read_text("utf-8"))["rows"]


def save(kind: str, rows: list[dict[str, Any]]) -> None:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{time.strftime('%Y-%m-%d-%H%M')}-{_commit()}-{kind}.json"
    head = f'"commit": {json.dumps(_commit())}, "machine": {json.dumps(machine())}'
    # A line for each row: a difference between two files is one of rows.
    lines = ",\n".join(map(json.dumps, rows))
    path.write_text(f'{{{head}, "rows": [\n{lines}\n]}}\n', "utf-8")
    print(f"saved as {path}")
