"""`zmqtriton-ctl jobs`: the operator sees and changes jobs of all tokens."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.addons.ctl.system.commands import OPTION, ctl
from tests.addons.jobs.asking import add_journal, ask, ended, journal_body, soon, submit
from tests.support.journal import UNTIL_RELEASED, executions, release_execution
from tests.support.server import Server

pytestmark = pytest.mark.system


def test_jobs_are_listed_retried_and_purged(tmp_path: Path) -> None:
    options = ["--jobs", OPTION.replace("@DIRECTORY@", str(tmp_path))]
    server = Server(tmp_path / "s", options=options, frontends=())
    add_journal(server, JOBS_LIMIT="1")
    with server:
        good = submit(server, "good").document["id"]
        ended(server, good)
        large = journal_body("bad", UNTIL_RELEASED) + b" " * (100 << 10)
        submitted = ask(server, "/v2/models/journal/infer", large, {"Prefer": "respond-async"})
        bad = submitted.document["id"]
        soon(lambda: executions(server.journal).get("bad") == 1)
        for pid in server.pids()["stub"]:
            os.kill(pid, signal.SIGKILL)
        assert "failed" == ended(server, bad)["state"]

        assert [bad] == [
            job["id"] for job in json.loads(ctl(server, "jobs", "--failed", "--json").output)
        ]
        table = ctl(server, "jobs").output.splitlines()
        assert [bad, good] == [row.partition("\t")[0] for row in table[1:]]

        assert "1 job\n" == ctl(server, "jobs", "retry", "--failed").output
        soon(lambda: executions(server.journal).get("bad") == 2)
        assert "0 jobs\n" == ctl(server, "jobs", "purge", bad).output
        release_execution(server.journal, "bad")
        assert "succeeded" == ended(server, bad)["state"]
        assert "0 jobs\n" == ctl(server, "jobs", "retry", bad).output

        assert "1 job\n" == ctl(server, "jobs", "purge", bad).output
        assert 404 == ask(server, f"/v2/jobs/{bad}").status
        unknown = ctl(server, "jobs", "purge", bad)
        assert (1, "there is no such job") == (unknown.exit_code, unknown.output.strip()[-20:])
        assert 2 == ctl(server, "jobs", "purge").exit_code
        assert "1 job\n" == ctl(server, "jobs", "purge", "--ended").output
        assert [] == json.loads(ctl(server, "jobs", "--json").output)


def test_a_server_without_jobs_says_so(tmp_path: Path) -> None:
    options = [OPTION.replace("@DIRECTORY@", str(tmp_path))]
    with Server(tmp_path / "s", options=options, frontends=()) as server:
        result = ctl(server, "jobs")

    assert 1 == result.exit_code
    assert "the server runs without --jobs" in result.output
