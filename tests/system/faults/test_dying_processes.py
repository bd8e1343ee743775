"""A process that dies at each start, or says nothing at it, is named, and costs others nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.server import Server, ask_add_sub
from tests.support.waiting import eventually

pytestmark = pytest.mark.system

#: Has the process of jobs die of an error, a while after its connection to the broker has ended.
_DIES_LATE = """
import sys
if "zmqtriton_extras.jobs.process" in sys.orig_argv:
    import time
    from zmqtriton_extras.jobs.process import service

    def fail(*arguments):
        raise KeyError("an error")

    service.JobsService.__init__ = fail
    sys.excepthook = lambda *error: time.sleep(1.5)
"""
#: Has the process of gRPC start in a Python without that module.
_WITHOUT_SSL = """
import sys
if "zmqtriton_frontends.grpc_api" in sys.orig_argv:
    sys.modules["ssl"] = sys.modules["_ssl"] = None
"""
#: Stops the process of jobs by a signal, and has that of routes wait for a file, at their start.
_SAYS_NOTHING = """
import os, signal, sys, time
if "zmqtriton_extras.jobs.process" in sys.orig_argv:
    os.kill(os.getpid(), signal.SIGSTOP)
if "zmqtriton_extras.routes.process" in sys.orig_argv:
    while not os.path.exists(os.environ["GOES_ON"]):
        time.sleep(0.05)
"""


@contextmanager
def broken(directory: Path, code: str, *options: str) -> Iterator[Server]:
    """Start a server of whose processes some run this code first."""
    (place := directory / "site").mkdir()
    (place / "sitecustomize.py").write_text(code)
    environment = {"PYTHONPATH": str(place)}
    server = Server(directory / "s", ["add_sub"], options=options, environment=environment)
    with server:
        yield server


def deaths_of(server: Server, role: str) -> int:
    return len(re.findall(rf"the {role} process \d+ has died", server.log_text()))


def ctl(server: Server, *words: str) -> Any:
    command = [sys.executable, "-m", "zmqtriton.ctl.main", f"--server={server.pid}", *words]
    done = subprocess.run(
        [*command, "-o", "json"], capture_output=True, text=True, timeout=120, check=False
    )
    return json.loads(done.stdout)


def check_named(server: Server, role: str) -> None:
    """Check that status, explain and doctor name the process and the reason of its death."""
    text = f"the {role} process dies again and again"
    [row] = [r for r in ctl(server, "status")["process_troubles"] if r["role"] == role]
    assert text in row["text"]
    assert "exited with status 1" in row["text"]
    assert text in ctl(server, "status")["server"]["ready"]
    assert [text] == [f["text"][: len(text)] for f in ctl(server, "explain") if role in f["text"]]
    assert any(text in finding["text"] for finding in ctl(server, "doctor"))


def test_a_process_of_jobs_that_dies_at_each_start_costs_no_broker(tmp_path: Path) -> None:
    with broken(tmp_path, _DIES_LATE, "--jobs") as server:
        [broker] = server.pids()["broker"]

        eventually(lambda: deaths_of(server, "jobs") >= 5, 120, "deaths")

        assert [broker] == server.pids()["broker"]
        assert "is replaced" not in server.log_text()
        assert 200 == ask_add_sub(server)
        check_named(server, "jobs")


def test_a_frontend_that_can_never_start_is_named(tmp_path: Path) -> None:
    with broken(tmp_path, _WITHOUT_SSL) as server:
        eventually(lambda: deaths_of(server, "grpc") >= 3, 120, "deaths")

        check_named(server, "grpc")
        assert 200 == ask_add_sub(server)


def test_processes_that_say_nothing_at_their_start_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that a signal has stopped is killed and started again; one that hangs may yet open."""

    def explained(words: str) -> list[str]:
        return [one["text"] for one in ctl(server, "explain") if words in one["text"]]

    monkeypatch.setenv("GOES_ON", str(tmp_path / "goes-on"))
    with broken(tmp_path, _SAYS_NOTHING, "--jobs", "--routes") as server:
        [pid] = server.pids()["routes"]

        [silent] = eventually(lambda: explained("has not opened after"), 120, "routes are named")
        [stopped] = eventually(lambda: explained("dies again and again"), 120, "jobs are named")

        assert silent.startswith(f"the routes process {pid} ")
        assert stopped.startswith("the jobs process ")
        assert "was stopped by a signal and is killed" in server.log_text()
        assert 200 == ask_add_sub(server)
        (tmp_path / "goes-on").touch()
        eventually(lambda: not explained("has not opened after"), 120, "it has opened")
        assert [pid] == server.pids()["routes"]
