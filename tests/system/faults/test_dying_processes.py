"""A process that dies at each start, or says nothing at it, is named, and costs others nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.standard.ctl.system.commands import ctl
from tests.support.server import Server, ask_add_sub
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.system,
    pytest.mark.long(
        "supervisor/server_processes/test_opening.py::test_a_process_that_never_opens_is_started_ever_more_seldom",
        "supervisor/server_processes/test_opening.py::test_a_process_that_says_nothing_is_named_in_the_log_and_in_the_status",
    ),
]

#: Has the process of gRPC start in a Python without that module.
_WITHOUT_SSL = """
import sys
if "zmqtriton_frontends.grpc_api" in sys.orig_argv:
    sys.modules["ssl"] = sys.modules["_ssl"] = None
"""
#: Stops the process of jobs by a signal, at its start.
_SAYS_NOTHING = """
import os, signal
if "zmqtriton_extras.jobs.process" in sys.orig_argv:
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of whose processes some run this code first."""
    (place := tmp_path / "site").mkdir()
    (place / "sitecustomize.py").write_text(_WITHOUT_SSL + _SAYS_NOTHING)
    environment = {"PYTHONPATH": str(place)}
    options = ["--jobs", f"--runtime-directory={tmp_path}/run"]
    with Server(
        tmp_path / "s", ["add_sub"], options=options, environment=environment, frontends=("grpc",)
    ) as server:
        yield server


def deaths_of(server: Server, role: str) -> int:
    return len(re.findall(rf"the {role} process \d+ has died", server.log_text()))


def said(server: Server, word: str) -> Any:
    return json.loads(ctl(server, word, "-o", "json").stdout)


def check_named(server: Server, role: str, reason: str) -> None:
    """Check that status, explain and doctor name the process and the reason of its death."""
    text = f"the {role} process dies again and again"
    [row] = [r for r in said(server, "status")["process_troubles"] if r["role"] == role]
    assert text in row["text"]
    assert reason in row["text"]
    assert text in said(server, "status")["server"]["ready"]
    assert [text] == [f["text"][: len(text)] for f in said(server, "explain") if role in f["text"]]
    assert any(text in finding["text"] for finding in said(server, "doctor"))


def test_processes_that_die_or_say_nothing_at_their_start_are_named_and_cost_no_broker(
    server: Server,
) -> None:
    [broker] = server.pids()["broker"]

    eventually(lambda: deaths_of(server, "grpc") >= 3, 120, "deaths of gRPC")
    check_named(server, "grpc", "exited with status 1")
    stopped = "is killed: a signal has stopped it"
    eventually(lambda: stopped in server.log_text(), 120, "that of jobs is killed")
    eventually(lambda: deaths_of(server, "jobs") >= 1, 120, "it has ended")

    assert [broker] == server.pids()["broker"]
    assert "is replaced" not in server.log_text()
    assert 200 == ask_add_sub(server)
