"""`zmqtriton-ctl doctor` as users run it: on this machine, with a server and without."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.standard.ctl.system.commands import OPTION, ctl
from tests.support.server import Server, free_ports
from tests.support.waiting import eventually
from zmqtriton.ctl.main import cli

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(models=("add_sub",), options=(OPTION,), frontends=()),
]


def doctor(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "zmqtriton.ctl.main"]
    return subprocess.run(
        [*program, f"--runtime-directory={directory}", "doctor", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def faults(document: str) -> list[Any]:
    """Return what is worse than a note; some of that may be true of whatever machine tests."""
    findings = [each for each in json.loads(document) if each["severity"] != "note"]
    of_machine = (
        "the machine has",
        "the control group",
        "the kernel has killed",
        "of the server's",
        "of the machine's CPU",
        "CPU is short",
        "memory is short",
        "disks are slow or busy",
    )
    return [
        each["text"] for each in findings if not any(text in each["text"] for text in of_machine)
    ]


@pytest.mark.row("L13")
def test_a_server_that_is_well_and_one_that_is_stopped(server: Server) -> None:
    well = doctor(server.directory.parent / "run", "-o", "json")
    shown = ctl(server, "doctor")
    stub, stopped = eventually(lambda: _stop_and_ask(server), 60, "it was seen")
    eventually(lambda: server.stub_pids("add_sub") not in ([], [stub]), 60, "a new stub")
    eventually(server.is_ready, 60, "ready")

    assert (0, []) == (well.returncode, faults(well.stdout)), well.stderr
    assert "things were looked at" in shown.stdout
    assert "models get all variables of the environment but the server's own" in shown.stdout
    summary = shown.stdout.splitlines()[-1]
    assert any(text in summary for text in ("error", "warning", "nothing is wrong, "))
    assert f"add_sub_0_0 (pid {stub}) is stopped by a signal or a debugger" in faults(
        stopped.stdout
    )
    assert 1 == stopped.exit_code


def _stop_and_ask(server: Server) -> tuple[int, Result] | None:
    """Stop the stub; one that is stopped is replaced after three seconds, so it may go unseen."""
    pids = server.stub_pids("add_sub")
    if not pids:
        return None
    os.kill(pids[0], signal.SIGSTOP)
    done = ctl(server, "doctor", "-o", "json")
    return (pids[0], done) if f"pid {pids[0]}" in done.stdout else None


def judge(directory: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, [f"--runtime-directory={directory}", "doctor", *words])


@pytest.mark.row("L13")
def test_without_a_server_the_start_of_one_is_judged(tmp_path: Path) -> None:
    number, *others = free_ports(3)
    ports = (f"--grpc-port={others[0]}", f"--metrics-port={others[1]}")
    with socket.socket() as holder:
        holder.bind(("0.0.0.0", number))
        holder.listen()
        words = ("-o", "json", "--", f"--http-port={number}", *ports)
        taken = judge(tmp_path, *words)
    well = judge(tmp_path, *words)

    assert 1 == taken.exit_code
    assert any(
        text.startswith(f"port {number} is in use by process") for text in faults(taken.stdout)
    )
    assert (0, []) == (well.exit_code, faults(well.stdout)), well.stdout
