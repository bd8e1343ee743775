"""`zmqtriton-ctl jobs`: the operator sees and changes jobs of all tokens."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.standard.ctl.system.commands import OPTION, ctl
from tests.support.journal import UNTIL_RELEASED, executions, release_execution
from tests.support.server import Server
from zmqtriton_extras.jobs.tests.asking import add_journal, ask, ended, journal_body, soon, submit

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
        assert ended(server, bad)["state"] == "failed"

        assert [bad] == [
            job["id"] for job in json.loads(ctl(server, "jobs", "--failed", "--json").output)
        ]
        table = ctl(server, "jobs").output.splitlines()
        assert [bad, good] == [row.partition("\t")[0] for row in table[1:]]

        assert ctl(server, "jobs", "retry", "--failed").output == "1 job\n"
        soon(lambda: executions(server.journal).get("bad") == 2)
        assert ctl(server, "jobs", "purge", bad).output == "0 jobs\n"
        release_execution(server.journal, "bad")
        assert ended(server, bad)["state"] == "succeeded"
        assert ctl(server, "jobs", "retry", bad).output == "0 jobs\n"

        assert ctl(server, "jobs", "purge", bad).output == "1 job\n"
        assert ask(server, f"/v2/jobs/{bad}").status == 404
        unknown = ctl(server, "jobs", "purge", bad)
        assert (unknown.exit_code, "there is no such job" in unknown.output) == (1, True)
        assert ctl(server, "jobs", "purge").exit_code == 2
        assert ctl(server, "jobs", "purge", "--ended").output == "1 job\n"
        assert json.loads(ctl(server, "jobs", "--json").output) == []


def test_a_server_without_jobs_says_so(tmp_path: Path) -> None:
    options = [OPTION.replace("@DIRECTORY@", str(tmp_path))]
    with Server(tmp_path / "s", options=options, frontends=()) as server:
        result = ctl(server, "jobs")

    assert result.exit_code == 1
    assert "start it with --jobs" in result.output
