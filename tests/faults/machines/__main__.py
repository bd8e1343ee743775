"""`make faults OF=machines`: makes each machine of the table, and runs the drive in it.

With --page it writes the table into docs/reliability.md and starts nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.faults.machines.machine import Machine, why_none
from tests.faults.machines.table import MACHINES, write_page
from tests.support.needs import ROOT

_MACHINE_LIMIT_S = 240
_LINES_OF_LOG = 30
#: Lines of the log begin otherwise.
_OF_TABLES = ("", "|", "+")


class Outcome(NamedTuple):
    machine: Machine
    #: Why it was left out.
    missing: str = ""
    error: str = ""
    log: str = ""
    seconds: float = 0.0

    def text(self) -> str:
        name = f"{self.machine.name:26}"
        if self.missing:
            return f"{name} left out: {self.missing}"
        if not self.error:
            return f"{name} {'told' if self.machine.sentence else 'works':6} {self.seconds:5.1f} s"
        lines = [line for line in self.log.splitlines() if line[:1] not in _OF_TABLES]
        lines = lines[-_LINES_OF_LOG:]
        return "\n".join([f"{name} FAILED: {self.error}", *(f"    {line}" for line in lines)])


def visit(machine: Machine) -> Outcome:
    """Run the drive in one machine."""
    if reason := machine.missing():
        return Outcome(machine, missing=reason)
    try:
        if machine.python:
            machine.python()
    except subprocess.CalledProcessError as failure:
        return Outcome(machine, error="no environment", log=str(failure.stderr))
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        words = [sys.executable, "-m", "tests.faults.machines.drive", machine.name, directory]
        try:
            done = subprocess.run(
                machine.command(Path(directory), words),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                cwd=ROOT,
                # of the drive's own clients, which fork nothing
                env=os.environ | {"GRPC_ENABLE_FORK_SUPPORT": "0"},
                timeout=_MACHINE_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Outcome(machine, error=f"not done in {_MACHINE_LIMIT_S} s")
    seconds = time.monotonic() - begun_s
    if done.returncode:
        told = [json.loads(line) for line in done.stdout.splitlines() if line[:9] == '{"error":']
        [report] = told or [{"error": "the drive", "log": done.stdout + done.stderr}]
        return Outcome(machine, error=report["error"], log=report["log"], seconds=seconds)
    return Outcome(machine, seconds=seconds)


def visit_all(machines: Sequence[Machine], jobs: int) -> int:
    """Print what each machine is like; return 1 if one is not as the table says."""
    if reason := why_none():
        print(f"left out: {reason}")
        return 0
    begun_s, has_failed = time.monotonic(), False
    with ThreadPoolExecutor(jobs) as pool:
        for outcome in pool.map(visit, machines):
            print(outcome.text(), flush=True)
            has_failed |= bool(outcome.error)
    print(f"{len(machines)} machines in {time.monotonic() - begun_s:.0f} s")
    return int(has_failed)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make faults OF=machines", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*MACHINES, []], help="all without any")
    parser.add_argument("--jobs", type=int, default=2, help="machines at a time")
    parser.add_argument("--page", action="store_true", help="write the table into the page")
    arguments = parser.parse_args()
    if arguments.page:
        write_page()
        return 0
    return visit_all([MACHINES[n] for n in arguments.names or MACHINES], arguments.jobs)


if __name__ == "__main__":
    raise SystemExit(main())
