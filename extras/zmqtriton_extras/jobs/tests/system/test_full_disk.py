"""A full disk refuses new jobs, and loses none that was promised."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

import pytest

from tests.support.journal import UNTIL_RELEASED, executions, release_execution
from tests.support.server import Server
from tests.support.small_disk import python_with_disk
from zmqtriton_extras.jobs.tests.asking import add_journal, ask, ended, soon, state_of, submit

pytestmark = pytest.mark.system

#: Little more than is kept free for answers.
_DISK_BYTES = 66 << 20


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server whose state directory is a small disk, which ends with it."""
    state = tmp_path / "jobs"
    state.mkdir()
    python = python_with_disk(state, _DISK_BYTES)
    options = ["--jobs", f"--state-directory={state}"]
    server = Server(tmp_path / "s", options=options, python=python, frontends=())
    add_journal(server, JOBS_LIMIT="1")
    add_journal(server, "again", JOBS_LIMIT="1", JOBS_REPEAT="true")
    with server:
        yield server


def fill_disk(server: Server) -> Path:
    """Take what is free, as another program would; return what has it."""
    state = server.directory.parent / "jobs"
    filler = Path(f"/proc/{server.pids()['supervisor'][0]}/root{state}/filler")
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        file.writelines(repeat(bytes(1 << 20)))
    return filler


def test_a_full_disk_refuses_new_jobs_and_loses_none(server: Server) -> None:
    running = submit(server, "running", UNTIL_RELEASED).document["id"]
    promised = [running]
    large = "x" * (256 << 10)
    while (reply := submit(server, f"{len(promised)} {large}")).status == 202:
        promised.append(reply.document["id"])
        assert len(promised) < 20, "the disk does not become full"
    assert reply.status == 507
    assert "disk of the state directory is full" in reply.document["error"]

    filler = fill_disk(server)
    assert submit(server, "small").status == 507
    release_execution(server.journal, "running")
    soon(lambda: "cannot be kept yet" in server.log_text())
    assert state_of(server, running)["state"] == "running"
    filler.unlink()

    assert ["succeeded"] * len(promised) == [ended(server, job)["state"] for job in promised]
    assert {1} == set(executions(server.journal).values())
    soon(lambda: "all answers of jobs are kept again" in server.log_text())
    assert server.log_text().count("cannot be kept yet") == 1
    assert "could not be gone on with" not in server.log_text()
    for job in promised:
        assert ask(server, f"/v2/jobs/{job}", method="DELETE").status == 200
    assert submit(server, "after").status == 202


@pytest.mark.long(
    "extras/jobs/system/test_full_disk.py::test_a_full_disk_refuses_new_jobs_and_loses_none",
    "extras/jobs/system/test_losses.py::test_a_job_that_ran_runs_again_if_its_model_says_so",
)
def test_a_process_that_is_killed_on_a_full_disk_loses_none(server: Server) -> None:
    promised = [submit(server, "running", UNTIL_RELEASED, "again").document["id"]]
    promised += [submit(server, f"waits {n}", 0, "again").document["id"] for n in range(5)]
    soon(lambda: "running" in executions(server.journal))
    [jobs_process] = server.pids()["jobs"]

    filler = fill_disk(server)
    os.kill(jobs_process, signal.SIGKILL)
    soon(lambda: server.pids().get("jobs", [jobs_process]) != [jobs_process])
    release_execution(server.journal, "running")
    assert submit(server, "refused").status == 507
    filler.unlink()
    soon(lambda: ask(server, "/v2/jobs").status == 200)

    assert [ended(server, job)["state"] for job in promised] == ["succeeded"] * 6


def test_a_disk_that_is_full_at_the_start_is_called_so(tmp_path: Path) -> None:
    state = tmp_path / "jobs"
    state.mkdir()
    python = python_with_disk(state, _DISK_BYTES)
    # room for a database, and none for the shared index of its log
    python.write_text(
        python.read_text().replace(
            "; exec", f"; head -c {_DISK_BYTES - (16 << 10)} /dev/zero > {state}/filler; exec"
        )
    )
    options = ["--jobs", f"--state-directory={state}"]
    server = Server(tmp_path / "s", options=options, python=python, frontends=())
    add_journal(server)
    with server:
        refused = submit(server, "one")
        (supervisor,) = server.pids()["supervisor"]
        Path(f"/proc/{supervisor}/root{state}/filler").unlink()
        soon(lambda: submit(server, "one").status == 202)

    assert refused.status == 507
    assert "disk of the state directory is full" in refused.document["error"]
