"""The jobs on disk: rows in SQLite, and a file for each large request and response.

Everything here runs in the one thread of `StoreThread`. Committed changes survive a power cut (WAL,
synchronous=FULL; files are synchronised before their rows).
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from zmqtriton_extras.jobs.process.webhooks.records import WebhookRecords

_T = TypeVar("_T")

QUEUED, RUNNING, SUCCEEDED, FAILED = "queued", "running", "succeeded", "failed"
#: Larger bodies are files beside the database.
FILE_BYTES = 64 << 10
#: The part of the disk that is left to the answers of jobs.
RESERVED_BYTES = 64 << 20
FULL = "the disk of the state directory is full; retry later"
_TOO_MANY_BYTES = (
    "jobs and results have {} bytes of --jobs-max-bytes={}; remove some, or retry when some have "
    "ended for --jobs-keep-secs"
)
_NO_ROOM_FOR_ANSWER = (
    "the answer of {} bytes or more has no room: jobs and results may have {} more by "
    "--jobs-max-bytes={}; remove some, and have this one executed again"
)
_EXPIRED = "the job has waited for longer than --jobs-keep-secs={}"
_INTERRUPTED = (
    "the server ended while the job ran, and its model does not say that a job may run again "
    "(parameter JOBS_REPEAT)"
)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs(
  number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, owner TEXT NOT NULL,
  key TEXT, digest BLOB, model TEXT NOT NULL, path TEXT NOT NULL, query TEXT NOT NULL,
  headers TEXT NOT NULL, body BLOB, body_bytes INTEGER NOT NULL, state TEXT NOT NULL,
  may_repeat INTEGER NOT NULL DEFAULT 0, tries INTEGER NOT NULL DEFAULT 0,
  not_before REAL NOT NULL DEFAULT 0, submitted REAL NOT NULL, started REAL, ended REAL,
  status INTEGER, reply_headers TEXT, reply BLOB, reply_bytes INTEGER NOT NULL DEFAULT 0,
  reason TEXT);
CREATE UNIQUE INDEX IF NOT EXISTS keys ON jobs(owner, key) WHERE key IS NOT NULL;
DROP INDEX IF EXISTS queue;
CREATE INDEX IF NOT EXISTS turns ON jobs(model, owner, number) WHERE state = 'queued';
CREATE INDEX IF NOT EXISTS owners ON jobs(owner, number);
CREATE INDEX IF NOT EXISTS ends ON jobs(ended) WHERE ended IS NOT NULL;
CREATE INDEX IF NOT EXISTS underway ON jobs(number) WHERE state = 'running';
CREATE INDEX IF NOT EXISTS failures ON jobs(number) WHERE state = 'failed';
CREATE INDEX IF NOT EXISTS waiting ON jobs(submitted) WHERE state = 'queued';
CREATE TABLE IF NOT EXISTS held(
  job TEXT PRIMARY KEY, holder TEXT NOT NULL, label TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS holders ON held(holder);
CREATE TABLE IF NOT EXISTS kept(what TEXT PRIMARY KEY, bytes INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counts(
  model TEXT NOT NULL, state TEXT NOT NULL, jobs INTEGER NOT NULL, bytes INTEGER NOT NULL,
  PRIMARY KEY(model, state)) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS one_more AFTER INSERT ON jobs BEGIN
  INSERT INTO counts VALUES(new.model, new.state, 1, new.body_bytes)
    ON CONFLICT DO UPDATE SET jobs = jobs + 1, bytes = bytes + excluded.bytes; END;
CREATE TRIGGER IF NOT EXISTS one_less AFTER DELETE ON jobs BEGIN
  UPDATE counts SET jobs = jobs - 1, bytes = bytes - old.body_bytes - old.reply_bytes
    WHERE model = old.model AND state = old.state; END;
CREATE TRIGGER IF NOT EXISTS another AFTER UPDATE OF state, body_bytes, reply_bytes ON jobs BEGIN
  UPDATE counts SET jobs = jobs - 1, bytes = bytes - old.body_bytes - old.reply_bytes
    WHERE model = old.model AND state = old.state;
  INSERT INTO counts VALUES(new.model, new.state, 1, new.body_bytes + new.reply_bytes)
    ON CONFLICT DO UPDATE SET jobs = jobs + 1, bytes = bytes + excluded.bytes; END;
"""
#: Jobs but those of rooms, which take them away when they have ended.
_FREE = "NOT EXISTS(SELECT 1 FROM held WHERE job=jobs.id)"
#: The size of a job's row beside its bodies, about; and the part of an answer that always has room,
#: beside that of its request.
_ROW_BYTES = 1024
_SWEPT_AT_ONCE = 200
#: Maximum place in a queue that is reported; counting up to it costs a step for each place.
MAX_PLACE = 10_000
_ANY_NUMBER = 1 << 62
_BODIES = "bodies"
_ROW = (
    "id, owner, model, path, query, headers, body, body_bytes, state, tries, submitted, started, "
    "ended, status, reply_headers, reply, reply_bytes, reason, number"
)
#: The same without the contents.
_LISTED = _ROW.replace(" body,", " NULL,").replace(" reply,", " NULL,")


class Refused(Exception):
    """Raised to refuse a client's request, with a status and a text."""

    def __str__(self) -> str:
        return str(self.args[1])


class Submission(NamedTuple):
    id: str
    owner: str
    key: str | None
    digest: bytes
    model: str
    path: str
    query: str
    headers: str
    #: Bytes of the request's body; None if they are in a file.
    body: bytes | None
    body_bytes: int
    #: URL of the job's webhook, and its receiver; "" without a webhook.
    webhook: str = ""
    receiver: str = ""


class Job(NamedTuple):
    id: str
    owner: str
    model: str
    path: str
    query: str
    headers: str
    body: bytes | None
    body_bytes: int
    state: str
    tries: int
    submitted: float
    started: float | None
    ended: float | None
    status: int | None
    reply_headers: str | None
    reply: bytes | None
    reply_bytes: int
    reason: str | None
    number: int


class Outcome(NamedTuple):
    """The result of a job, or of one try."""

    state: str
    status: int | None = None
    headers: str = "[]"
    reply: bytes = b""
    reason: str | None = None
    #: Time before which a job that was queued again does not begin.
    not_before: float = 0.0


class Limits(NamedTuple):
    keep_s: int = 7 * 24 * 3600
    max_bytes: int = 10 << 30


def close_to_others(file: Path) -> None:
    """Make a file of the database, or close it to other users; SQLite copies its mode to others."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if os.fstat(descriptor).st_mode & 0o077:
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


class Store:
    def __init__(
        self,
        directory: Path,
        limits: Limits = Limits(),  # noqa: B008 - it never changes
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Open the store, or make it. Raises OSError and sqlite3.Error."""
        self.limits = limits
        self.directory = directory
        self._bodies = directory / _BODIES
        self._bodies.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._clock = clock
        file = directory / "jobs.sqlite"
        close_to_others(file)
        self._database = database = sqlite3.connect(
            file, isolation_level=None, cached_statements=64
        )
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.executescript(_SCHEMA)
        self.webhooks = WebhookRecords(database, clock)
        synchronise(directory)
        #: Performs a statement of another room, on its own tables.
        self.execute = database.execute
        #: The files that go when the transaction is durable.
        self._gone: list[Path] = []
        #: Owner whose job was started last, by model.
        self._turns: dict[str, str] = {}

    def close(self) -> None:
        self._database.close()

    def begin(self) -> None:
        self._database.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self._database.execute("COMMIT")
        for file in self._gone:
            with suppress(OSError):  # it is removed when the store is opened again
                file.unlink(missing_ok=True)
        self._gone.clear()

    def roll_back(self) -> None:
        self._gone.clear()
        if self._database.in_transaction:
            self._database.execute("ROLLBACK")

    def attempt(self, work: Callable[[Store], _T]) -> _T:
        """Perform a piece of work in a transaction; an exception rolls all of it back."""
        gone = len(self._gone)
        self._database.execute("SAVEPOINT work")
        try:
            result = work(self)
        except BaseException:
            del self._gone[gone:]
            if self.is_in_transaction:
                self._database.execute("ROLLBACK TO work")
                self._database.execute("RELEASE work")
            raise
        self._database.execute("RELEASE work")
        return result

    @property
    def is_in_transaction(self) -> bool:
        """True in a transaction; an error of the disk may have ended it."""
        return self._database.in_transaction

    @property
    def changes(self) -> int:
        """The number of changed rows, which shows whether a transaction has written."""
        return self._database.total_changes

    # ------------------------------------------------------------------ files

    def check_room(self, size: int, jobs: int = 1) -> None:
        """Raise Refused if the disk has no room for another job of this size, or jobs."""
        disk = os.statvfs(self._bodies)
        if disk.f_bavail * disk.f_frsize < size + RESERVED_BYTES:
            raise Refused(507, FULL)
        if size + 2 * jobs * _ROW_BYTES > self._free_bytes():
            limit = self.limits.max_bytes
            raise Refused(507, _TOO_MANY_BYTES.format(self.taken_bytes(), limit))

    def has_room(self) -> bool:
        """Return whether another job could be kept."""
        try:
            self.check_room(0)
        except (Refused, OSError):  # the disk is full, or the directory is gone
            return False
        return os.access(self._bodies, os.W_OK)

    def fault_of(self, job: str, size: int, *, is_failure: bool = False) -> str:
        """Return why a response of this size has no room; "" if it has room."""
        if size <= _ROW_BYTES:
            return ""
        free, own = self._free_bytes(), _ROW_BYTES
        if not is_failure:  # the request of one that has not failed makes room
            statement = "SELECT IFNULL(SUM(body_bytes), 0) FROM jobs WHERE id=?"
            own += self._database.execute(statement, (job,)).fetchone()[0]
        if size <= own + max(0, free):
            return ""
        return _NO_ROOM_FOR_ANSWER.format(size, max(0, free), self.limits.max_bytes)

    def _free_bytes(self) -> int:
        """Return the bytes that jobs may still take, apart from the room for small responses."""
        statement = "SELECT IFNULL(SUM(jobs), 0) FROM counts WHERE state IN ('queued', 'running')"
        [promised] = self._database.execute(statement).fetchone()
        return int(self.limits.max_bytes - self.taken_bytes() - promised * _ROW_BYTES)

    def taken_bytes(self) -> int:
        """Return the approximate size of jobs, results and rooms' data on disk."""
        rows = self._database.execute(
            "SELECT bytes + jobs * ? FROM counts UNION ALL SELECT bytes FROM kept", (_ROW_BYTES,)
        )
        return sum(row[0] for row in rows)

    def counts(self) -> dict[tuple[str, str], int]:
        """Return the number of jobs by model and state."""
        rows = self._database.execute("SELECT model, state, jobs FROM counts WHERE jobs>0")
        return {(model, state): jobs for model, state, jobs in rows}

    def ages(self) -> dict[str, float]:
        """Return the seconds since the oldest job was queued, and since it was begun."""
        now_s = self._clock()
        columns = {QUEUED: "submitted", RUNNING: "started"}
        rows = [
            (state, self._database.execute(f"SELECT MIN({column}) FROM jobs WHERE state='{state}'"))
            for state, column in columns.items()
        ]
        oldest = [(state, row.fetchone()[0]) for state, row in rows]
        return {state: max(0.0, now_s - at_s) for state, at_s in oldest if at_s is not None}

    def sync_bodies(self) -> None:
        """Make the names of new files durable."""
        synchronise(self._bodies)

    def remove_files(self, *files: Path) -> None:
        """Remove files once the transaction is durable: until then they are needed."""
        self._gone += files

    def _remove_bodies(self, job: str, *kinds: str) -> None:
        self.remove_files(*(path_of(self.directory, job, kind) for kind in kinds))

    # ------------------------------------------------------------------- jobs

    def recover(self, executed: Collection[str] | None = None) -> int:
        """Settle jobs that ran when an earlier process ended; return the number of failed ones.

        Only `executed` jobs may have had effects; None means that any may have.
        """
        change = self._database.execute
        if executed is not None:
            for (job,) in change("SELECT id FROM jobs WHERE state='running'").fetchall():
                if job not in executed:
                    change("UPDATE jobs SET state='queued', tries=tries-1 WHERE id=?", (job,))
        change("UPDATE jobs SET state='queued' WHERE state='running' AND may_repeat")
        lost = change(
            "UPDATE jobs SET state='failed', ended=?, status=503, reason=?, reply_headers='[]' "
            "WHERE state='running'",
            (self._clock(), _INTERRUPTED),
        ).rowcount
        for file in self._bodies.iterdir():
            if not self._has(file.name.partition(".")[0]):
                file.unlink()  # of a job that was never promised
        return lost

    def submit(self, job: Submission) -> Job:
        """Store a job; return it, or the earlier job with its key. Raises Refused."""
        return self._earlier(job) or self._admit(job, QUEUED)

    def submit_and_begin(self, job: Submission, may_repeat: bool) -> tuple[Job, Job | None]:
        """Store a job and begin the next one of its model: the same one, if no other waits.

        Returns both, as they were before. Raises Refused.
        """
        earlier = self._earlier(job)
        if earlier is None and not self._has_queued(job.model):
            begun = self._admit(job, RUNNING, may_repeat)
            self._turns[job.model] = job.owner
            return begun, begun
        kept = earlier or self._admit(job, QUEUED)
        return kept, self.claim(job.model, may_repeat)

    def _earlier(self, job: Submission) -> Job | None:
        """Return the job that was submitted with the same id, or the same key.

        Raises Refused if the request with the key was another one.
        """
        if self._has(job.id):
            return self.find(job.id, job.owner)
        if job.key is None:
            return None
        row = self._database.execute(
            "SELECT id, digest FROM jobs WHERE owner=? AND key=?", (job.owner, job.key)
        ).fetchone()
        if row is None:
            return None
        if row[1] != job.digest:
            raise Refused(
                422, "the idempotency key was used for another request: choose another key"
            )
        return self.find(row[0], job.owner)

    def _has(self, job: str) -> bool:
        statement = "SELECT 1 FROM jobs WHERE id=?"
        return self._database.execute(statement, (job,)).fetchone() is not None

    def _admit(self, job: Submission, state: str, may_repeat: bool = False) -> Job:
        """Store a job if there is room; return it as queued. Raises Refused."""
        if job.body is not None:  # for the file of a larger one the room was checked before
            self.check_room(job.body_bytes)
        return self.keep(job, state, may_repeat)

    def keep(self, job: Submission, state: str = QUEUED, may_repeat: bool = False) -> Job:
        """Store a job without a key, or the first with its key; return it as queued."""
        now_s, is_running = self._clock(), state == RUNNING
        row = job[: Submission._fields.index("webhook")]
        number = self._database.execute(
            "INSERT INTO jobs(id, owner, key, digest, model, path, query, headers, body, "
            "body_bytes, state, submitted, started, may_repeat, tries) "
            "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (*row, state, now_s, now_s if is_running else None, may_repeat, int(is_running)),
        ).lastrowid
        if job.webhook:
            self.webhooks.add(job.id, job.webhook, job.receiver)
        assert number is not None, "a row was added"
        request = (job.id, job.owner, job.model, job.path, job.query, job.headers, job.body)
        rest = (job.body_bytes, QUEUED, 0, now_s, *[None] * 5, 0, None, number)
        return Job._make(request + rest)

    def find(self, job: str, owner: str | None) -> Job:
        """Return a job of this owner, None for any owner. Raises Refused."""
        free = "" if owner is None else f" AND {_FREE}"
        statement = f"SELECT {_ROW} FROM jobs WHERE id=?{free}"
        row = self._database.execute(statement, (job,)).fetchone()
        if row is None or owner not in (None, row[1]):
            raise Refused(404, "there is no such job; GET /v2/jobs lists yours")
        return Job(*row)

    def _find_free(self, job: str) -> Job:
        """Return a job that no batch holds. Raises Refused."""
        row = self.find(job, None)
        return self.find(job, row.owner)

    def newest(self, owner: str | None, state: str = "", limit: int = 100) -> list[Job]:
        # as text, so that each has its index
        of_owner = "1" if owner is None else f"owner=:owner AND {_FREE}"
        in_state = "state='failed'" if state == FAILED else "state=:state" if state else "1"
        rows = self._database.execute(
            f"SELECT {_LISTED} FROM jobs WHERE {of_owner} AND {in_state} "
            "ORDER BY number DESC LIMIT :limit",
            {"owner": owner, "state": state, "limit": limit},
        )
        return [Job(*row) for row in rows]

    def place(self, job: Job) -> int:
        """Return the place of a queued job of its model, from 1, up to a limit.

        Before it are the owner's earlier jobs, and as many of each other owner, because owners take
        turns.
        """
        own = place = self._count_queued(job, job.owner, job.number, MAX_PLACE)
        last = self._turns.get(job.model)

        def turn(owner: str) -> tuple[bool, str]:
            return last is not None and owner <= last, owner

        for owner in self._waiting_owners(job.model):
            if owner != job.owner and place < MAX_PLACE:
                limit = own - (turn(owner) > turn(job.owner))
                place += self._count_queued(job, owner, _ANY_NUMBER, min(limit, MAX_PLACE - place))
        return place

    def _count_queued(self, job: Job, owner: str, until: int, limit: int) -> int:
        """Count queued jobs of an owner for the model of a job, up to a number."""
        [count] = self._database.execute(
            "SELECT COUNT(*) FROM (SELECT 1 FROM jobs WHERE state='queued' AND model=? AND "
            "owner=? AND number<=? LIMIT ?)",
            (job.model, owner, until, limit),
        ).fetchone()
        return int(count)

    def _waiting_owners(self, model: str) -> list[str]:
        """Return the owners whose jobs wait for a model."""
        # steps from one to the next in the index, however many jobs each has
        rows = self._database.execute(
            "WITH RECURSIVE o(name) AS (SELECT MIN(owner) FROM jobs WHERE state='queued' AND "
            "model=:model UNION ALL SELECT (SELECT MIN(owner) FROM jobs WHERE state='queued' AND "
            "model=:model AND owner>name) FROM o WHERE name IS NOT NULL) SELECT name FROM o "
            "WHERE name IS NOT NULL",
            {"model": model},
        )
        return [row[0] for row in rows]

    def _has_queued(self, model: str) -> bool:
        statement = "SELECT 1 FROM jobs WHERE state='queued' AND model=? LIMIT 1"
        return self._database.execute(statement, (model,)).fetchone() is not None

    def queued_models(self) -> list[str]:
        """Return the models with queued jobs that may begin now."""
        rows = self._database.execute(
            "SELECT model FROM counts WHERE state='queued' AND jobs>0 AND EXISTS (SELECT 1 FROM "
            "jobs WHERE state='queued' AND model=counts.model AND not_before<=?)",
            (self._clock(),),
        )
        return [row[0] for row in rows]

    def claim(self, model: str, may_repeat: bool) -> Job | None:
        """Begin the next job of a model, whose owners take turns; None without one."""
        values = {"model": model, "now": self._clock(), "last": self._turns.get(model)}
        for behind in ("owner>:last", "1"):  # the last one's successor, or the first of all
            row = self._database.execute(
                f"SELECT {_ROW} FROM jobs WHERE state='queued' AND model=:model AND "
                f"not_before<=:now AND {behind} ORDER BY owner, number LIMIT 1",
                values,
            ).fetchone()
            if row is not None:
                break
        else:
            return None
        job = Job(*row)
        self._turns[model] = job.owner
        self._database.execute(
            "UPDATE jobs SET state='running', started=?, may_repeat=?, tries=tries+1 "
            "WHERE number=?",
            (values["now"], may_repeat, job.number),
        )
        return job

    def claim_some(self, model: str, may_repeat: bool, limit: int) -> list[Job]:
        """Begin the next jobs of a model, up to a limit."""
        jobs: list[Job] = []
        while len(jobs) < limit and (job := self.claim(model, may_repeat)) is not None:
            jobs.append(job)
        return jobs

    def discard(self, job: str) -> None:
        """Remove the file of a request that did not become a job."""
        if not self._has(job):
            self._remove_bodies(job, "request")

    def end(self, job: Job, outcome: Outcome) -> Outcome:
        """Store the outcome of a running job, a failure if its response has no room; return it."""
        if outcome.state == QUEUED:
            self._database.execute(
                "UPDATE jobs SET state='queued', not_before=? WHERE id=? AND state='running'",
                (outcome.not_before, job.id),
            )
            return outcome
        is_failure = outcome.state == FAILED
        if fault := self.fault_of(job.id, len(outcome.reply), is_failure=is_failure):
            failed = Outcome(FAILED, 507, reason=fault)
            outcome = outcome._replace(reply=b"") if is_failure else failed
        reply: bytes | None = outcome.reply
        if len(outcome.reply) > FILE_BYTES:
            write_file(path_of(self.directory, job.id, "reply"), outcome.reply)
            self.sync_bodies()
            reply = None
        body = "" if outcome.state == FAILED else "body=NULL, body_bytes=0, "  # may be retried
        change = self._database.execute(
            f"UPDATE jobs SET {body}state=?, ended=?, status=?, reply_headers=?, reply=?, "
            "reply_bytes=?, reason=? WHERE id=? AND state='running'",
            (
                outcome.state,
                self._clock(),
                outcome.status,
                outcome.headers,
                reply,
                len(outcome.reply),
                outcome.reason,
                job.id,
            ),
        )
        if not change.rowcount:
            self._remove_bodies(job.id, "reply")  # it was cancelled meanwhile
        elif outcome.state == SUCCEEDED and job.body is None:  # others may run again
            self._remove_bodies(job.id, "request")
        return outcome

    def sweep(self) -> bool:
        """Remove jobs that ended long ago, and fail those that wait for too long.

        Returns whether there may be more of them.
        """
        now_s, keep_s = self._clock(), self.limits.keep_s
        change, before = self._database.execute, (now_s - keep_s, _SWEPT_AT_ONCE)
        late = change(
            "SELECT id FROM jobs WHERE state='queued' AND submitted<? LIMIT ?", before
        ).fetchall()
        for (job,) in late:
            change(
                "UPDATE jobs SET state='failed', ended=?, reason=? WHERE id=?",
                (now_s, _EXPIRED.format(keep_s), job),
            )
        over = change(f"SELECT id FROM jobs WHERE ended<? AND {_FREE} LIMIT ?", before).fetchall()
        for (job,) in over:
            self.drop(job)
        change("DELETE FROM counts WHERE jobs=0")
        return _SWEPT_AT_ONCE in (len(late), len(over))

    def cancel(self, job: str, owner: str | None) -> Job:
        """Cancel a job, unless it has ended; return it as it is afterwards. Raises Refused."""
        row = self.find(job, owner)
        if row.state not in (QUEUED, RUNNING):
            return row
        self._database.execute(
            "UPDATE jobs SET state='cancelled', ended=?, body=NULL, body_bytes=0 WHERE id=?",
            (self._clock(), job),
        )
        self._remove_bodies(job, "request")
        return self.find(job, owner)

    def remove(self, job: str, owner: str | None) -> None:
        """Remove an ended job, if it still exists."""
        with suppress(Refused):
            if self.find(job, owner).state not in (QUEUED, RUNNING):
                self.drop(job)

    def drop(self, job: str) -> None:
        """Remove a job, whatever its state is."""
        self._database.execute("DELETE FROM jobs WHERE id=?", (job,))
        self._remove_bodies(job, "request", "reply")

    def retry(self, jobs: Sequence[str]) -> int:
        """Queue failed jobs again, as new ones at their old places; return their number."""
        failed = [job for job in jobs if self._find_free(job).state == FAILED]
        for job in failed:
            self._database.execute(
                "UPDATE jobs SET state='queued', submitted=?, started=NULL, ended=NULL, tries=0, "
                "not_before=0, status=NULL, reply_headers=NULL, reply=NULL, reply_bytes=0, "
                "reason=NULL WHERE id=?",
                (self._clock(), job),
            )
            self._remove_bodies(job, "reply")
        return len(failed)

    def purge(self, jobs: Sequence[str]) -> int:
        """Remove the jobs that have ended; return their number."""
        ended = [job for job in jobs if self._find_free(job).state not in (QUEUED, RUNNING)]
        for job in ended:
            self.drop(job)
        return len(ended)

    def some(self, states: Sequence[str]) -> list[str]:
        """Return the ids of some jobs in these states, the oldest ones."""
        marks = ",".join("?" * len(states))
        rows = self._database.execute(
            f"SELECT id FROM jobs WHERE state IN ({marks}) AND {_FREE} ORDER BY number LIMIT ?",
            (*states, _SWEPT_AT_ONCE),
        )
        return [row[0] for row in rows]


def path_of(directory: Path, job: str, kind: str) -> Path:
    """Return the file of a job's `request` or `reply`; the ids are made by the server."""
    return directory / _BODIES / f"{job}.{kind}"


def write_file(path: Path, content: bytes) -> None:
    """Write a file that survives a power cut once its directory is synced."""
    with open(path, "wb", opener=_private) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def synchronise(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
