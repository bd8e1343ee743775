"""The jobs on disk, with a clock of the test's own."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from zmqtriton_extras.jobs.messages import new_id
from zmqtriton_extras.jobs.process.store import (
    FAILED,
    FILE_BYTES,
    QUEUED,
    SUCCEEDED,
    Job,
    Limits,
    Outcome,
    Refused,
    Store,
    Submission,
    path_of,
    write_file,
)

#: The indexes of jobs that run or have failed, of which there are few.
SMALL_INDEXES = ("INDEX underway", "INDEX failures")
KEEP_S, MAX_BYTES = 100, 1 << 20


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Jobs:
    """A store, and shortened calls of it."""

    def __init__(self, directory: Path) -> None:
        self.clock = Clock()
        self.store = Store(directory, Limits(KEEP_S, MAX_BYTES), self.clock)

    def submission(
        self, model: str = "m", body: bytes = b"{}", key: str | None = None, owner: str = ""
    ) -> Submission:
        own_id = new_id()
        kept: bytes | None = body
        if len(body) > FILE_BYTES:
            write_file(path_of(self.store.directory, own_id, "request"), body)
            kept = None
        digest, path = body[:8], f"/v2/models/{model}/infer"
        return Submission(own_id, owner, key, digest, model, path, "", "[]", kept, len(body))

    def submit(
        self, model: str = "m", body: bytes = b"{}", key: str | None = None, owner: str = ""
    ) -> Job:
        return self.store.submit(self.submission(model, body, key, owner))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.store.begin()
        yield
        self.store.commit()

    def begun(self, count: int, model: str = "m") -> list[str]:
        """Begin this many jobs; return whose they are."""
        jobs = [self.store.claim(model, False) for _ in range(count)]
        return [job.owner for job in jobs if job is not None]

    def run(self, model: str = "m", reply: bytes = b"[]") -> Job | None:
        """Execute the next job."""
        job = self.store.claim(model, False)
        if job is None:
            return None
        self.store.end(job, Outcome(SUCCEEDED, 200, "[]", reply))
        return job

    def states(self, *jobs: Job) -> list[str]:
        rows = {each.id: each.state for each in self.store.newest(None, limit=1000)}
        return [rows.get(job.id, "gone") for job in jobs]


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    jobs = Jobs(tmp_path)
    yield jobs
    jobs.store.close()


def test_a_directory_that_is_gone_takes_no_job(jobs: Jobs) -> None:
    assert jobs.store.has_room()

    shutil.rmtree(jobs.store._bodies)

    assert not jobs.store.has_room()


def test_what_has_ended_long_ago_is_removed_with_its_files(jobs: Jobs, tmp_path: Path) -> None:
    large = b"x" * (FILE_BYTES + 1)
    old = jobs.submit(body=large)
    jobs.run(reply=large)
    jobs.clock.now_s += KEEP_S
    young = jobs.submit()
    jobs.run()

    assert not jobs.store.sweep()
    assert jobs.states(old, young) == [SUCCEEDED] * 2
    jobs.clock.now_s += 1
    with jobs.transaction():
        jobs.store.sweep()

    assert jobs.states(old, young) == ["gone", SUCCEEDED]
    assert list((tmp_path / "bodies").iterdir()) == []


def test_what_waits_for_too_long_fails_and_what_runs_goes_on(jobs: Jobs) -> None:
    running, waiting = jobs.submit(), jobs.submit(body=b"x" * (FILE_BYTES + 1))
    jobs.store.claim("m", False)
    jobs.clock.now_s += KEEP_S + 1

    jobs.store.sweep()

    assert jobs.states(running, waiting) == ["running", FAILED]
    assert "waited for longer" in str(jobs.store.find(waiting.id, None).reason)
    assert jobs.run() is None
    assert jobs.store.retry([running.id, waiting.id]) == 1
    assert jobs.states(running, waiting) == ["running", QUEUED]
    again = jobs.run()
    assert again is not None
    assert waiting.id == again.id


@pytest.mark.slow
def test_more_than_a_sweep_takes_is_told(jobs: Jobs) -> None:
    for _ in range(201):
        jobs.submit()
        jobs.run()
    jobs.clock.now_s += KEEP_S + 1

    assert [jobs.store.sweep() for _ in range(2)] == [True, False]
    assert jobs.store.newest(None) == []


def test_a_limit_of_bytes_refuses_new_jobs_and_removes_none(jobs: Jobs) -> None:
    kept = jobs.submit()
    jobs.run(reply=b"y" * (MAX_BYTES - 4096))

    with pytest.raises(Refused) as refusal:
        jobs.store.check_room(2048)

    assert refusal.value.args[0] == 507
    assert "--jobs-max-bytes=1048576" in refusal.value.args[1]
    jobs.store.check_room(100)
    assert jobs.states(kept) == [SUCCEEDED]
    jobs.store.remove(kept.id, None)
    jobs.store.check_room(MAX_BYTES // 2)


def test_answers_that_have_no_room_fail_their_jobs_which_run_again_when_there_is(
    jobs: Jobs,
) -> None:
    large, whole = b"x" * (FILE_BYTES + 1), b"y" * 100_000
    all_jobs = [jobs.submit(body=large if number % 7 == 0 else b"{}") for number in range(40)]
    peak = 0
    while jobs.run(reply=whole) is not None:
        peak = max(peak, jobs.store.taken_bytes())

    assert peak <= MAX_BYTES
    states = Counter(jobs.states(*all_jobs))
    assert {SUCCEEDED, FAILED} == states.keys()
    failed = [row.id for row in jobs.store.newest(None, FAILED)]
    row = jobs.store.find(failed[0], None)
    assert row.status == 507
    assert "the answer of 100000 bytes or more has no room" in str(row.reason)
    with pytest.raises(Refused, match="--jobs-max-bytes"):
        jobs.store.check_room(100_000)
    jobs.store.purge([job.id for job in all_jobs if job.id not in failed])
    assert len(failed) == jobs.store.retry(failed)
    files = {path_of(jobs.store.directory, job, "request") for job in failed}
    assert large in {file.read_bytes() for file in files if file.exists()}
    again = jobs.run(reply=whole)
    assert again is not None
    assert jobs.states(again) == [SUCCEEDED]


@pytest.mark.slow
def test_answers_hardly_larger_than_their_requests_always_have_room(jobs: Jobs) -> None:
    chance = random.Random(8)
    sizes = []
    with suppress(Refused):
        while True:
            sizes.append(chance.choice((10, 500, 20_000)))
            jobs.store.check_room(sizes[-1])
            jobs.submit(body=b"x" * sizes[-1])
    assert len(sizes) > 20

    for size in sizes[:-1]:
        job = jobs.run(reply=b"y" * (size + 1000))
        assert job is not None
        assert jobs.states(job) == [SUCCEEDED]
        assert jobs.store.taken_bytes() <= MAX_BYTES


def test_a_failure_keeps_its_reason_where_its_answer_has_no_room(jobs: Jobs) -> None:
    jobs.submit()
    job = jobs.store.claim("m", False)
    assert job is not None

    outcome = jobs.store.end(job, Outcome(FAILED, 500, "[]", b"z" * MAX_BYTES, "a reason"))

    row = jobs.store.find(job.id, None)
    assert (row.state, row.status, row.reason, row.reply_bytes) == (FAILED, 500, "a reason", 0)
    assert outcome.reply == b""


@pytest.mark.slow
def test_the_counts_are_those_of_the_rows_whatever_happens(jobs: Jobs) -> None:
    chance = random.Random(5)
    submitted: list[Job] = []
    for _ in range(400):
        event = chance.randrange(5)
        model = chance.choice("ab")
        if event < 2:
            submitted.append(jobs.submit(model, b"x" * chance.randrange(100)))
        elif event == 2:
            jobs.run(model, b"y" * chance.randrange(100))
        elif event == 3 and submitted:
            job_id = submitted.pop(chance.randrange(len(submitted))).id
            chance.choice((jobs.store.cancel, jobs.store.remove))(job_id, None)
        elif (job := jobs.store.claim(model, False)) is not None:
            jobs.store.end(job, Outcome(QUEUED))

    rows = jobs.store.newest(None, limit=1000)
    assert Counter((row.model, row.state) for row in rows) == jobs.store.counts()
    bodies = sum(row.body_bytes + row.reply_bytes for row in rows)
    assert bodies + 1024 * len(rows) == jobs.store.taken_bytes()


def test_owners_take_turns_however_many_jobs_one_has(jobs: Jobs) -> None:
    jobs.store.begin()  # all of it is one transaction, which is quicker
    for _ in range(300):
        jobs.submit(owner="many")
    jobs.begun(100)
    single = jobs.submit(owner="single")
    for _ in range(3):
        jobs.submit(owner="few")

    assert jobs.store.place(single) == 1
    assert jobs.begun(8) == ["single", "few", "many", "few", "many", "few", "many", "many"]
    assert len(jobs.begun(1000)) == 196


def test_a_turn_goes_to_who_has_a_job_whose_time_has_come(jobs: Jobs) -> None:
    for owner in "aabb":
        jobs.submit(owner=owner)
    first = jobs.store.claim("m", False)
    assert first is not None
    jobs.store.end(first, Outcome(QUEUED, not_before=jobs.clock.now_s + 1))

    assert [*"bab"] == jobs.begun(4)
    jobs.clock.now_s += 1
    assert jobs.begun(4) == ["a"]


def test_the_place_of_a_job_is_when_its_turn_comes(jobs: Jobs) -> None:
    jobs.store.begin()
    chance = random.Random(7)
    for _ in range(10):
        waiting = [jobs.submit(owner=chance.choice("abcd")) for _ in range(30)]
        jobs.begun(chance.randrange(20))
        rows = [jobs.store.find(job.id, None) for job in waiting]
        expected = {row.id: jobs.store.place(row) for row in rows if row.state == QUEUED}

        begun = [job.id for _ in expected if (job := jobs.store.claim("m", False)) is not None]

        assert begun == sorted(expected, key=lambda job: expected[job])
        assert [*range(1, len(begun) + 1)] == sorted(expected.values())


def test_a_job_begins_in_the_transaction_that_keeps_it_unless_another_waits(jobs: Jobs) -> None:
    kept, begun = jobs.store.submit_and_begin(jobs.submission(key="k", owner="a"), True)
    assert kept == begun
    assert kept.state == QUEUED
    assert jobs.store.find(kept.id, "a")[8:10] == ("running", 1)
    jobs.store.recover()
    assert jobs.store.find(kept.id, "a")[8:10] == (QUEUED, 1)

    other, begun = jobs.store.submit_and_begin(jobs.submission(owner="a"), False)
    assert begun is not None
    assert [kept.id, "running", QUEUED] == [begun.id, *jobs.states(kept, other)]
    again, begun = jobs.store.submit_and_begin(jobs.submission(key="k", owner="a"), False)
    assert begun is not None
    assert [kept.id, other.id] == [again.id, begun.id]
    assert (again.id, None) == (kept.id, jobs.store.claim("m", False))


def test_a_submission_that_is_repeated_is_the_same_job(jobs: Jobs) -> None:
    submission = jobs.submission(body=b"x" * (FILE_BYTES + 1))
    kept = jobs.store.submit(submission)
    jobs.store.claim("m", False)

    again = jobs.store.submit(submission)
    jobs.store.discard(submission.id)

    assert (kept.id, "running") == (again.id, again.state)
    assert sum(jobs.store.counts().values()) == 1
    assert path_of(jobs.store.directory, kept.id, "request").exists()


def test_a_repeated_end_of_a_job_does_what_one_does(jobs: Jobs) -> None:
    job, other = jobs.submit(), jobs.submit()
    for _ in range(2):
        assert jobs.store.cancel(job.id, None).state == "cancelled"
    jobs.run()
    assert jobs.store.cancel(other.id, None).state == SUCCEEDED
    assert jobs.states(job, other) == ["cancelled", SUCCEEDED]

    jobs.store.remove(job.id, "another owner")
    assert jobs.states(job, other) == ["cancelled", SUCCEEDED]
    for _ in range(2):
        jobs.store.remove(job.id, "")
    assert jobs.states(job, other) == ["gone", SUCCEEDED]


def test_files_stay_until_what_ends_their_use_is_durable(jobs: Jobs, tmp_path: Path) -> None:
    large = b"x" * (FILE_BYTES + 1)
    waiting, ended = jobs.submit("waits", large), jobs.submit("m", large)
    files = {path_of(tmp_path, waiting.id, "request"), path_of(tmp_path, ended.id, "reply")}

    def change() -> None:
        jobs.store.cancel(waiting.id, None)
        jobs.store.remove(ended.id, None)

    with jobs.transaction():
        jobs.run(reply=large)
    jobs.store.begin()
    change()
    jobs.store.roll_back()
    with jobs.transaction(), pytest.raises(ZeroDivisionError):
        jobs.store.attempt(lambda _: (change(), 1 // 0))  # type: ignore[func-returns-value]
    assert jobs.states(waiting, ended) == [QUEUED, SUCCEEDED]
    assert files == {*(tmp_path / "bodies").iterdir()}

    with jobs.transaction():
        jobs.store.attempt(lambda _: change())
    assert list((tmp_path / "bodies").iterdir()) == []


def test_jobs_that_were_not_executed_are_queued_again(jobs: Jobs) -> None:
    executed, claimed, repeated = (jobs.submit() for _ in range(3))
    jobs.begun(2)
    jobs.store.claim("m", True)

    assert jobs.store.recover([executed.id, repeated.id]) == 1

    assert jobs.states(executed, claimed, repeated) == [FAILED, QUEUED, QUEUED]
    assert [jobs.store.find(job.id, None).tries for job in (claimed, repeated)] == [0, 1]


def test_no_step_reads_all_jobs(jobs: Jobs) -> None:
    """However many wait: each statement of the steps has an index."""
    job = jobs.submit()
    statements: list[str] = []
    database = jobs.store._database
    database.set_trace_callback(statements.append)
    jobs.store.submit_and_begin(jobs.submission(), False)
    for owner in (None, "ann"):
        jobs.store.newest(owner)
    jobs.store.newest(None, FAILED)
    jobs.store.place(job)
    jobs.store.queued_models()
    jobs.store.ages()
    jobs.store.check_room(1)
    jobs.store.sweep()
    jobs.store.recover()
    jobs.store.webhooks.due_receivers()
    jobs.store.webhooks.claim("app.example")
    jobs.run()
    jobs.store.cancel(job.id, None)
    database.set_trace_callback(None)

    traced = [
        text for text in statements if text.startswith(("SELECT", "UPDATE", "DELETE", "WITH"))
    ]
    plans = {
        text: [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {text}")] for text in traced
    }
    assert len(plans) > 20
    # the newest of all owners are read from the end of the table, as many as are asked for
    newest = "ORDER BY number DESC LIMIT"
    assert [
        (text, step)
        for text, steps in plans.items()
        for step in steps
        if step.startswith(("SCAN jobs", "SCAN webhooks"))
        and not step.endswith(SMALL_INDEXES)
        and newest not in text
    ] == []
