"""`zmqtriton-ctl` as users run it, against a real server."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as http_client

from tests.support.server import Server
from tests.support.waiting import eventually

pytestmark = pytest.mark.system


class Ctl:
    def __init__(self, directory: Path) -> None:
        program = [sys.executable, "-m", "zmqtriton.ctl.main"]
        self.command = [*program, "--runtime-directory", str(directory)]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command, *words], capture_output=True, text=True, timeout=60, check=False
        )

    def json(self, *words: str) -> Any:
        result = self.run(*words, "--json")
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)


FRONTENDS = ("metrics",)
MODELS = ("add_sub", "raising")
OPTIONS = (
    "--runtime-directory=@DIRECTORY@/run",
    *("--model-control-mode=explicit", "--load-model=add_sub", "--load-model=mortal"),
)


def prepare(server: Server) -> None:
    # Its processes end; those of `add_sub` do not.
    server.add_model("add_sub", "mortal")


def stub_of(status: Any, model: str) -> Any:
    (stub,) = [p for p in status["processes"] if p["role"] == "stub" and p["model"] == model]
    return stub


@pytest.fixture
def ctl(server: Server) -> Ctl:
    return Ctl(server.directory.parent / "run")


def infer(server: Server, model: str = "add_sub") -> None:
    with http_client.InferenceServerClient(server.url.removeprefix("http://")) as client:
        tensors = []
        for name in ("INPUT0", "INPUT1"):
            tensor = http_client.InferInput(name, [1, 16], "FP32")
            tensor.set_data_from_numpy(np.ones((1, 16), np.float32))
            tensors.append(tensor)
        client.infer(model, tensors)


def _with_counts(status: Any) -> Any:
    return status if status["counts"] else None


def test_the_status_is_the_real_processes_and_counts(server: Server, ctl: Ctl) -> None:
    # A broker that takes too long is shown without counts.
    before = eventually(lambda: _with_counts(ctl.json("status")), 30, "counts")
    for _ in range(3):
        infer(server)

    status = eventually(lambda: _with_counts(ctl.json("status")), 30, "counts")

    assert server.url == f"http://{status['server']['addresses']['http']}"
    processes = status["processes"]
    assert sorted(p for pids in server.pids().values() for p in pids) == sorted(
        p["pid"] for p in processes if p["role"] != "reader"
    )
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


def test_the_status_for_people_has_a_line_for_each_process(server: Server, ctl: Ctl) -> None:
    shown = ctl.run("status")

    assert (0, "") == (shown.returncode, shown.stderr)
    (stub,) = [line for line in shown.stdout.splitlines() if line.startswith("stub add_sub")]
    pid = server.stub_pids("add_sub")[0]
    assert re.match(rf"stub add_sub_0_0\tadd_sub:1\t{pid}\t[-\d]+ [:\d]+\t\w+\tREADY\t0", stub)


def test_a_model_is_loaded_and_unloaded(server: Server, ctl: Ctl) -> None:
    assert {"name": "raising"} in ctl.json("models")

    assert "loaded raising\n" == ctl.run("load", "raising").stdout
    ready = {"name": "raising", "version": "1", "state": "READY"}
    assert ready in ctl.json("models", "--ready")

    assert "unloaded raising\n" == ctl.run("unload", "raising").stdout
    assert ready not in ctl.json("models")


def test_a_load_that_fails_says_why(server: Server, ctl: Ctl) -> None:
    refused = ctl.run("load", "nothing")

    assert (1, "") == (refused.returncode, refused.stdout)
    assert refused.stderr.startswith("error: ")
    assert "'nothing'" in refused.stderr


def test_stubs_tell_where_they_are_and_go_on(server: Server, ctl: Ctl) -> None:
    pids = server.stub_pids("add_sub")

    def stacks_shown() -> subprocess.CompletedProcess[str] | None:
        """It waits for some seconds only."""
        shown = ctl.run("stacks", "add_sub")
        return shown if "loop.py" in shown.stdout or shown.returncode else None

    shown = eventually(stacks_shown, 60, "the stacks")
    refused = ctl.run("stacks", "raising")

    assert (0, "") == (shown.returncode, shown.stderr)
    first, second, *frames = shown.stdout.splitlines()
    assert f"add_sub_0_0, pid {pids[0]}:" == first
    assert "(most recent call first):" in second
    assert any(re.match(r' +File ".*loop\.py", line \d+ in ', frame) for frame in frames)
    assert pids == server.stub_pids("add_sub")
    assert (1, "error: no process of model 'raising' runs\n") == (
        refused.returncode,
        refused.stderr,
    )


def test_no_server_is_said_with_the_place_and_the_reason(tmp_path: Path) -> None:
    missing = Ctl(tmp_path / "nowhere").run("status")

    expected = f"error: no running server found in {tmp_path}/nowhere (there is none)\n"
    assert (2, expected) == (missing.returncode, missing.stderr)


def test_logs_are_the_servers_and_those_of_a_model(server: Server, ctl: Ctl) -> None:
    everything = ctl.run("logs", "--lines", "1000").stdout
    assert "Started HTTPService at" in everything

    ours = ctl.run("logs", "add_sub").stdout
    assert "loading: add_sub:1" in ours
    assert "HTTPService" not in ours
    assert 1 == len(ctl.run("logs", "-n", "1").stdout.splitlines())


def _can_be_interrupted() -> None:
    """A shell in which the tests run in the background has all of them ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_followed_logs_show_what_comes(server: Server, ctl: Ctl) -> None:
    with subprocess.Popen(
        [*ctl.command, "logs", "mortal", "--follow", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=_can_be_interrupted,
    ) as following:
        assert following.stdout is not None
        try:
            following.stdout.readline()
            (pid,) = server.stub_pids("mortal")
            before = stub_of(ctl.json("status"), "mortal")["restarts"]
            os.kill(pid, signal.SIGKILL)
            for line in following.stdout:
                if "killed by SIGKILL" in json.loads(line)["text"]:
                    break
            else:
                pytest.fail("the death was not shown")
            following.send_signal(signal.SIGINT)
            following.communicate(timeout=30)
        finally:
            following.kill()
    assert 0 == following.returncode

    eventually(lambda: server.stub_pids("mortal") not in ([], [pid]), 30, "a new stub")
    eventually(server.is_ready, 30, "ready")
    stub = stub_of(ctl.json("status"), "mortal")
    assert (before + 1, "killed by SIGKILL") == (stub["restarts"], stub["last_reason"])


def test_logs_are_followed_as_long_as_somebody_reads(ctl: Ctl) -> None:
    with subprocess.Popen([*ctl.command, "logs", "--follow"], stdout=subprocess.PIPE) as following:
        assert following.stdout is not None
        try:
            following.stdout.readline()
            following.stdout.close()
            assert 0 == following.wait(30)
        finally:
            following.kill()


def test_a_model_is_restarted(server: Server, ctl: Ctl) -> None:
    before = server.stub_pids("mortal")

    done, refused = ctl.run("restart", "mortal"), ctl.run("restart", "add_subb")

    assert "restarted mortal: 1 process ended\n" == done.stdout
    assert "error: there is no model 'add_subb'; did you mean 'add_sub'?\n" == refused.stderr
    assert server.stub_pids("mortal") not in ([], before)
    assert re.search("restart 'mortal' .*for process ", server.log_text())
    infer(server, "mortal")
