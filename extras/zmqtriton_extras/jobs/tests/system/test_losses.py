"""A job that got its 202 is not lost, whatever is killed; and runs again only where it may."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.support.journal import UNTIL_RELEASED, executions, release_execution
from tests.support.server import Server
from zmqtriton_extras.jobs.process.store import FILE_BYTES
from zmqtriton_extras.jobs.tests.asking import (
    add_journal,
    ask,
    ended,
    journal_body,
    soon,
    state_of,
    submit,
)

pytestmark = pytest.mark.system

#: Jobs in their order: the third is held after one that was short.
_PLAY = ("hold", "short", "stuck", "later")
INTERRUPTED = "the server ended while the job ran, and its model does not say"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, options=["--jobs"], frontends=())
    add_journal(server, JOBS_LIMIT="1")
    add_journal(server, "again", JOBS_LIMIT="1", JOBS_REPEAT="true")
    with server:
        yield server


def restart(server: Server) -> None:
    server.kill()
    server.process = None
    server.start()


def connections(pid: int) -> int:
    """Return how many connections to a process's socket there are, with the waiting ones."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    target = os.readlink(f"/proc/{pid}/fd/{words[words.index('--socket') + 1]}")
    rows = [row.split() for row in Path("/proc/net/unix").read_text().splitlines()[1:]]
    [path] = [row[7] for row in rows if row[6] == target[len("socket:[") : -1]]
    return sum(row[7:] == [path] for row in rows) - 1


def kill(server: Server, role: str) -> None:
    for pid in server.pids()[role]:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "role",
    [
        "jobs",
        pytest.param(
            "supervisor",
            marks=pytest.mark.long(
                "extras/jobs/system/test_losses.py::test_a_job_that_ran_runs_again_if_its_model_says_so"
            ),
        ),
    ],
)
def test_a_job_that_ran_runs_again_if_its_model_says_so(server: Server, role: str) -> None:
    jobs = {
        model: submit(server, model, UNTIL_RELEASED, model).document["id"]
        for model in ("journal", "again")
    }
    waiting = [submit(server, f"later {n}").document["id"] for n in range(5)]
    soon(lambda: {"journal", "again"} <= executions(server.journal).keys())

    if role == "supervisor":
        restart(server)
    else:
        kill(server, role)
    release_execution(server.journal, "again")
    release_execution(server.journal, "journal")

    lost = ended(server, jobs["journal"])
    assert lost["state"] == "failed"
    assert INTERRUPTED in lost["reason"]
    assert ended(server, jobs["again"])["state"] == "succeeded"
    assert [ended(server, job)["state"] for job in waiting] == ["succeeded"] * 5
    counts = executions(server.journal)
    assert (counts["journal"], counts["again"]) == (1, 2)


def test_jobs_that_had_only_begun_on_disk_are_executed_later(server: Server) -> None:
    jobs: dict[str, str] = {}
    for turn in itertools.count():
        hold, _, stuck, later = names = [f"{word} {turn}" for word in _PLAY]
        for name in (*names, *(f"another {n} {turn}" for n in range(4))):
            held = UNTIL_RELEASED if name in (hold, stuck) else 0
            jobs[name] = submit(server, name, held).document["id"]
        soon(lambda name=hold: name in executions(server.journal))  # type: ignore[misc]
        release_execution(server.journal, hold)
        soon(lambda name=stuck: name in executions(server.journal))  # type: ignore[misc]
        # the one before was short: the next ones do not wait for the disk
        if _is_running_soon(server, jobs[later]):
            break
        release_execution(server.journal, stuck)  # a busy machine took long for it: once more
    assert later not in executions(server.journal)

    kill(server, "jobs")
    release_execution(server.journal, stuck)
    soon(lambda: ask(server, "/v2/jobs").status == 200)

    states = {name: ended(server, job)["state"] for name, job in jobs.items()}
    assert states.pop(stuck) == "failed"
    assert {"succeeded"} == {*states.values()}
    assert {1} == {*executions(server.journal).values()}


def _is_running_soon(server: Server, job: str) -> bool:
    for _ in range(50):
        if state_of(server, job)["state"] == "running":
            return True
        time.sleep(0.1)
    return False


def test_a_death_of_the_model_s_process_fails_the_job_or_repeats_it(server: Server) -> None:
    # one request is a file, which must still be there
    large = journal_body("again", UNTIL_RELEASED).ljust(FILE_BYTES + 1)
    headers = {"Prefer": "respond-async"}
    jobs = {
        "journal": submit(server, "journal", UNTIL_RELEASED).document["id"],
        "again": ask(server, "/v2/models/again/infer", large, headers).document["id"],
    }
    soon(lambda: {"journal", "again"} <= executions(server.journal).keys())

    kill(server, "stub")
    release_execution(server.journal, "again")

    lost = ended(server, jobs["journal"])
    assert (lost["state"], lost["status"]) == ("failed", 503)
    assert "is not healthy" in lost["reason"]
    assert ended(server, jobs["again"])["state"] == "succeeded"


@pytest.mark.long(
    "extras/jobs/system/test_losses.py::test_a_job_that_ran_runs_again_if_its_model_says_so",
    "extras/jobs/system/test_losses.py::test_a_death_of_the_model_s_process_fails_the_job_or_repeats_it",
)
def test_no_promised_job_is_lost_and_none_runs_twice_where_all_is_killed(server: Server) -> None:
    promised: dict[str, str] = {}
    is_over = threading.Event()

    def submit_on(worker: int) -> None:
        number = 0
        while not is_over.is_set():
            name, number = f"{worker} {number}", number + 1
            try:
                reply = submit(server, name, 1, "again" if number % 2 else "journal")
                if reply.status == 202:
                    promised[reply.document["id"]] = name
            except OSError:
                continue  # nobody was there, or it was killed before it promised anything

    def is_past(count: int) -> bool:
        return len(promised) > count

    workers = [threading.Thread(target=submit_on, args=(number,)) for number in range(3)]
    for worker in workers:
        worker.start()
    try:
        for role in ("jobs", "http", "broker", "jobs", "stub", "supervisor", "jobs"):
            soon(partial(is_past, len(promised) + 20))
            if role == "supervisor":
                restart(server)
            else:
                kill(server, role)
        soon(server.is_ready)
    finally:
        is_over.set()
        for worker in workers:
            worker.join()

    states = {job: ended(server, job) for job in promised}
    assert {"succeeded", "failed"} >= {state["state"] for state in states.values()}
    failed = [state["reason"] for state in states.values() if state["state"] == "failed"]
    causes = INTERRUPTED, "is not healthy", "broker"
    assert [reason for reason in failed if not any(cause in reason for cause in causes)] == []
    counts = executions(server.journal)
    once = [name for job, name in promised.items() if "journal" in states[job]["path"]]
    assert {1} >= {counts.get(name, 1) for name in once}
    assert [
        promised[job]
        for job, state in states.items()
        if state["state"] == "succeeded" and not counts.get(promised[job])
    ] == []


def test_a_kill_amid_questions_is_nobody_s_error(server: Server) -> None:
    ended_before = submit(server, "short").document["id"]
    assert ended(server, ended_before)["state"] == "succeeded"
    waiting = [
        submit(server, name, UNTIL_RELEASED, "again").document["id"] for name in ("stays", "goes")
    ]
    [pid] = server.pids()["jobs"]
    os.kill(pid, signal.SIGSTOP)
    large = journal_body("large").ljust(FILE_BYTES + 1)
    questions = [
        lambda: submit(server, "small"),
        lambda: ask(server, "/v2/models/journal/infer", large, {"Prefer": "respond-async"}),
        lambda: ask(server, f"/v2/jobs/{ended_before}", method="DELETE"),
        lambda: ask(server, f"/v2/jobs/{waiting[1]}", method="DELETE"),
    ]

    with ThreadPoolExecutor() as clients:
        replies = [clients.submit(question) for question in questions]
        soon(lambda: connections(pid) >= len(questions))
        os.kill(pid, signal.SIGKILL)

        assert [reply.result(60).status for reply in replies] == [202, 202, 200, 200]
    release_execution(server.journal, "stays")
    jobs = {each["id"]: each for each in ask(server, "/v2/jobs").document["jobs"]}
    assert {*waiting} | {reply.result().document["id"] for reply in replies[:2]} == jobs.keys()
    assert jobs[waiting[1]]["state"] == "cancelled"
    assert [ended(server, reply.result().document["id"])["state"] for reply in replies[:2]] == [
        "succeeded"
    ] * 2


def test_a_graceful_restart_ends_what_runs_and_keeps_what_waits(server: Server) -> None:
    running = submit(server, "running", UNTIL_RELEASED).document["id"]
    soon(lambda: "running" in executions(server.journal))
    waiting = [submit(server, f"waits {n}", 1).document["id"] for n in range(8)]

    assert server.process is not None
    server.process.send_signal(signal.SIGTERM)
    release_execution(server.journal, "running")
    assert server.process.wait(60) == 0
    server.process = None
    server.start()

    assert ended(server, running)["state"] == "succeeded"
    assert [ended(server, job)["state"] for job in waiting] == ["succeeded"] * 8
    assert {1} == set(executions(server.journal).values())
    assert ask(server, f"/v2/jobs/{running}", method="DELETE").status == 200
    assert state_of(server, waiting[0])["state"] == "succeeded"
