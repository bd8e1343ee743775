"""`zmqtriton-ctl` as users run it, against a real server."""

from __future__ import annotations

import json
import os
import re
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.standard.ctl.system.commands import ctl
from tests.support.server import Copy, Server, ask_add_sub, tensor
from tests.support.waiting import eventually
from zmqtriton.ctl.main import cli

pytestmark = [
    pytest.mark.system,
    pytest.mark.server(
        models=["add_sub", "coded", Copy("add_sub", "mortal"), Copy("add_sub", "spare")],
        load=("add_sub", "coded", "mortal"),
    ),
]


def stub_of(status: Any, model: str) -> Any:
    (stub,) = [p for p in status["processes"] if p["role"] == "stub" and p["model"] == model]
    return stub


def ctl_json(server: Server, *words: str) -> Any:
    result = ctl(server, *words, "--json")
    assert 0 == result.exit_code, result.stderr
    return json.loads(result.stdout)


def test_the_status_is_the_real_processes_and_counts(server: Server) -> None:
    def look() -> Any:
        """Return nothing where the broker takes too long, or a process has just begun or ended."""
        status = ctl_json(server, "status")
        pids = {p["pid"] for p in status["processes"] if p["role"] != "reader"}
        is_whole = pids == {p for pids in server.pids().values() for p in pids}
        return status if is_whole and status["counts"] else None

    before = eventually(look, 30, "counts of the real processes")
    for _ in range(3):
        ask_add_sub(server)

    status = eventually(look, 30, "counts of the real processes")

    assert server.url == f"http://{status['server']['addresses']['http']}"
    processes = status["processes"]
    stub = stub_of(status, "add_sub")
    assert server.stub_pids("add_sub") == [stub["pid"]]
    assert ("add_sub", 1, "add_sub_0_0", "READY", 0, "") == tuple(
        stub[key] for key in ("model", "version", "instance", "state", "restarts", "last_reason")
    )
    for process in processes:
        assert abs(time.time() - process["started_s"] - process["uptime_s"]) < 60
        # neither the supervisor nor the arbiter of the HTTP processes has to do with the broker
        assert process["is_connected"], process["role"]
    old, new = (
        next(counts for counts in each["counts"] if counts["model"] == "add_sub")
        for each in (before, status)
    )
    assert (1, 0, 0) == tuple(new[key] for key in ("version", "failed", "pending"))
    assert (3, 3) == tuple(new[key] - old[key] for key in ("succeeded", "executions"))


def test_stubs_tell_where_they_are_and_go_on(server: Server) -> None:
    pids = server.stub_pids("add_sub")

    def stacks_shown() -> Result | None:
        """It waits for some seconds only."""
        shown = ctl(server, "stacks", "add_sub")
        return shown if "loop.py" in shown.stdout or shown.exit_code else None

    shown = eventually(stacks_shown, 60, "the stacks")
    refused = ctl(server, "stacks", "spare")

    assert (0, "") == (shown.exit_code, shown.stderr)
    first, second, *frames = shown.stdout.splitlines()
    assert f"add_sub_0_0, pid {pids[0]}:" == first
    assert "(most recent call first):" in second
    assert any(re.match(r' +File ".*loop\.py", line \d+ in ', frame) for frame in frames)
    assert pids == server.stub_pids("add_sub")
    assert (1, "error: no process of model 'spare' runs; `zmqtriton-ctl explain` says why\n") == (
        refused.exit_code,
        refused.stderr,
    )


def test_stacks_do_not_interrupt_a_call_of_a_c_library(server: Server) -> None:
    """poll(2) ends at any signal that its thread handles, whatever the handler's flags."""
    fifo = server.directory / "go"
    os.mkfifo(fifo)
    code = f"""
    import ctypes, os
    ready = os.open({str(fifo)!r}, os.O_RDWR)
    one = (ctypes.c_int * 2)(ready, 1)
    return [say(ctypes.CDLL(None).poll(one, 1, 600_000))]
    """
    end = os.open(fifo, os.O_RDWR)

    def stacks() -> str:
        return ctl(server, "stacks", "coded").stdout

    with ThreadPoolExecutor(1) as pool:
        waiting_call = pool.submit(
            server.infer_json, "coded", tensor("CODE", "BYTES", [textwrap.dedent(code)])
        )
        try:
            eventually(lambda: waiting_call.done() or "in execute" in stacks(), 60)
            for _ in range(2):
                stacks()
            shown = stacks()
        finally:
            os.write(end, b"go")
        _, answer = waiting_call.result()
    os.close(end)

    assert ["1"] == answer["outputs"][0]["data"]
    assert "await_signals" not in shown, "the thread that takes the signal is not the model's"


def test_no_server_is_said_with_the_place_and_the_reason(tmp_path: Path) -> None:
    missing = CliRunner().invoke(cli, [f"--runtime-directory={tmp_path}/nowhere", "status"])

    expected = f"error: no running server found in {tmp_path}/nowhere (there is none)"
    # other tests may have servers of other users, which are named
    assert (2, expected) == (missing.exit_code, missing.stderr.partition(";")[0].rstrip())


def test_logs_are_the_servers_and_those_of_a_model(server: Server) -> None:
    assert "loading: mortal:1" in ctl(server, "logs", "--lines", "1000").stdout

    ours = ctl(server, "logs", "add_sub").stdout
    assert "loading: add_sub:1" in ours
    assert "loading: mortal:1" not in ours
    assert 1 == len(ctl(server, "logs", "-n", "1").stdout.splitlines())
