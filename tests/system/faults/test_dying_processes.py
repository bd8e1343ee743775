"""A process that dies at each start, or says nothing at it, is named, and costs others nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support import stub_user
from tests.support.needs import find_tool, skip_missing
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


def check_named(server: Server, role: str, reason: str = "exited with status 1") -> None:
    """Check that status, explain and doctor name the process and the reason of its death."""
    text = f"the {role} process dies again and again"
    [row] = [r for r in ctl(server, "status")["process_troubles"] if r["role"] == role]
    assert text in row["text"]
    assert reason in row["text"]
    assert text in ctl(server, "status")["server"]["ready"]
    assert [text] == [f["text"][: len(text)] for f in ctl(server, "explain") if role in f["text"]]
    assert any(text in finding["text"] for finding in ctl(server, "doctor"))


def test_processes_that_die_at_each_start_are_named_and_cost_no_broker(tmp_path: Path) -> None:
    with broken(tmp_path, _DIES_LATE + _WITHOUT_SSL, "--jobs") as server:
        [broker] = server.pids()["broker"]

        eventually(lambda: deaths_of(server, "jobs") >= 5, 120, "deaths of jobs")
        eventually(lambda: deaths_of(server, "grpc") >= 3, 120, "deaths of gRPC")

        check_named(server, "jobs")
        check_named(server, "grpc")
        assert [broker] == server.pids()["broker"]
        assert "is replaced" not in server.log_text()
        assert 200 == ask_add_sub(server)


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Server]:
    """A server of a user who has no other processes, and whom `ulimit -u` binds."""
    if os.geteuid():
        skip_missing("root's rights")
    user = 61000 + os.getpid() % 3000
    prefix = [find_tool("setpriv"), f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    server = Server(
        tmp_path / "s",
        ["add_sub"],
        environment={"HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"},
        stub_user="",
    )
    for place in (server.directory, *server.directory.rglob("*")):
        os.chown(place, user, user)
    stub_user.open_up(server.directory)
    server.wrapper = stub_user.within_reach(prefix)
    if subprocess.run([*server.wrapper, sys.executable, "-c", "import zmqtriton"]).returncode:
        skip_missing("code that another user may read")
    with server:
        yield server


def tasks_of(user: int) -> int:
    """Return how many processes and threads a user has."""
    found = [each.info for each in psutil.process_iter(["uids", "num_threads"])]
    return sum(one["num_threads"] for one in found if one["uids"] and one["uids"].real == user)


def limit(process: psutil.Process, tasks: int) -> None:
    """Let a process's user have so many, as far as this process and its later children count."""
    ids = process.uids().real, process.gids().real
    user = [find_tool("setpriv"), f"--reuid={ids[0]}", f"--regid={ids[1]}", "--clear-groups"]
    words = [find_tool("prlimit"), f"--pid={process.pid}", f"--nproc={tasks}:"]
    subprocess.run([*user, *words], check=True)


@pytest.mark.long(
    "system/faults/test_dying_processes.py::test_processes_that_die_at_each_start_are_named_and_cost_no_broker"
)
def test_a_frontend_that_ulimit_keeps_from_starting_is_named_and_tried_ever_more_seldom(
    limited: Server,
) -> None:
    """Gunicorn may start, and not the process that it forks to serve HTTP."""
    supervisor = psutil.Process(limited.pids()["supervisor"][0])
    user = supervisor.uids().real
    [arbiter] = [p for p in map(psutil.Process, limited.pids()["http"]) if p.children()]
    whole = [arbiter, *arbiter.children()]
    most = tasks_of(user) - sum(each.num_threads() for each in whole) + 1
    limit(supervisor, most)
    arbiter.kill()

    eventually(lambda: deaths_of(limited, "http-arbiter") >= 7, 240, "deaths")

    check_named(limited, "http-arbiter", "exited with status")
    log = limited.log_text()
    assert "Resource temporarily unavailable" in log
    died = re.findall(r"^E\d+ (\d+):(\d+):(\S+) .*http-arbiter process \d+ has died", log, re.M)
    at_s = [int(hour) * 3600 + int(minute) * 60 + float(second) for hour, minute, second in died]
    assert (at_s[6] - at_s[5]) % 86400 >= 3.2
    limit(supervisor, 1000)
    eventually(limited.is_ready, 240, "it serves when it may")
    assert 200 == ask_add_sub(limited)
    eventually(lambda: not ctl(limited, "status")["process_troubles"], 240, "no trouble")


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
