"""The lines of a batch as jobs, and the files with their results.

A file grows in the same transaction that removes the jobs, from the length in its row on, so each
line is answered once, even if a process dies.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from zmqtriton_extras.jobs.batches.process import tables
from zmqtriton_extras.jobs.batches.process.lines import Line
from zmqtriton_extras.jobs.batches.process.tables import (
    CANCELLED,
    CANCELLING,
    COMPLETED,
    ENDS,
    EXPIRED,
    EXPIRING,
    FAILED,
    FINALIZING,
    IN_PROGRESS,
    OUTPUT,
    VALIDATING,
    Batch,
    File,
)
from zmqtriton_extras.jobs.messages import new_id
from zmqtriton_extras.jobs.process.store import (
    FILE_BYTES,
    QUEUED,
    RUNNING,
    SUCCEEDED,
    Job,
    Store,
    Submission,
    path_of,
    write_file,
)

_JSON = "application/json"
_HEADERS = json.dumps([("content-type", _JSON)])
_COLLECTED_AT_ONCE = 200
_COPIED_BYTES = 1 << 20
_UNANSWERED = {
    CANCELLING: (
        "batch_cancelled",
        "This request was not executed: its batch was cancelled.",
    ),
    EXPIRING: (
        "batch_expired",
        "This request could not be executed before the completion window expired.",
    ),
}
_CODE = "server_error"
_JOB = ", ".join(f"jobs.{name}" for name in Job._fields)


class Progress(NamedTuple):
    """The result of a step."""

    batch: Batch
    #: Lines that are jobs now.
    under_way: int
    #: Lines whose answers were written.
    collected: int


class _Appending:
    """Appends to an output from the length in its row on; bytes after it were never committed."""

    def __init__(self, store: Store, file: str) -> None:
        self._store, self._file = store, file
        self._at = tables.find_file(store, file).bytes
        self._is_new = self._at == 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(tables.path_of(store.directory, file), flags, 0o600)

    def write(self, part: bytes) -> None:
        view = memoryview(part)
        while view:
            written = os.pwrite(self._descriptor, view, self._at)
            self._at += written
            view = view[written:]

    def keep(self) -> None:
        os.fsync(self._descriptor)
        if self._is_new:
            tables.sync_files(self._store)
        tables.set_size(self._store, self._file, self._at)

    def close(self) -> None:
        os.close(self._descriptor)


class _Answers:
    """The output and the errors of a batch while a step adds to them."""

    def __init__(self, store: Store, batch: Batch) -> None:
        self._store, self._batch = store, batch
        self._files: dict[str, _Appending] = {}
        self.completed = self.failed = 0

    def __enter__(self) -> _Answers:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                for file in self._files.values():
                    file.keep()
        finally:
            for file in self._files.values():
                file.close()

    def _file(self, name: str) -> _Appending:
        if name not in self._files:
            own_id = self._batch.output if name == "output" else self._batch.error
            assert own_id is not None, "a batch in progress has both"
            self._files[name] = _Appending(self._store, own_id)
        return self._files[name]

    def error(self, custom_id: str, job: str, code: str, message: str) -> None:
        self.failed += 1
        row = {
            "id": f"batch_req_{job}",
            "custom_id": custom_id,
            "response": None,
            "error": {"code": code, "message": message},
        }
        self._file("error").write(json.dumps(row).encode() + b"\n")

    def answer(self, custom_id: str, job: Job) -> None:
        """Write the response of a job, which is JSON, unchanged."""
        is_right = job.state == SUCCEEDED
        self.completed += is_right
        self.failed += not is_right
        file = self._file("output" if is_right else "error")
        own_id, label, request = map(
            json.dumps, (f"batch_req_{job.id}", custom_id, f"req_{job.id}")
        )
        head = (
            f'{{"id": {own_id}, "custom_id": {label}, "response": {{"status_code": {job.status}, '
            f'"request_id": {request}, "body": '
        )
        file.write(head.encode())
        if job.reply is not None:
            file.write(_on_one_line(job.reply))
        else:
            with path_of(self._store.directory, job.id, "reply").open("rb") as reply:
                while part := reply.read(_COPIED_BYTES):
                    file.write(_on_one_line(part))
        file.write(b'}, "error": null}\n')


def _on_one_line(part: bytes) -> bytes:
    """Return a part of a JSON text on one line; line ends can only be between its tokens."""
    return part.replace(b"\n", b" ").replace(b"\r", b" ")


def begin(store: Store, batch: str, total: int) -> Batch:
    """Begin a batch with valid input, unless it was cancelled."""
    row = tables.find_batch(store, batch)
    if row.state != VALIDATING:
        return row
    files = []
    for kind in ("output", "error"):
        now_s, own_id = time.time(), f"file-{new_id()}"
        name = f"{batch}_{kind}.jsonl"
        file = File(own_id, row.owner, OUTPUT, name, 0, 0, now_s, 0.0, 0)
        files.append(tables.add_file(store, file, 0, is_shown=False).id)
    output, error = files
    return tables.enter(store, batch, IN_PROGRESS, total=total, output=output, error=error)


def fail(store: Store, batch: str, faults: Sequence[dict[str, Any]]) -> Batch:
    """End a batch with invalid input, unless it was cancelled."""
    if tables.find_batch(store, batch).state == VALIDATING:
        tables.enter(store, batch, FAILED, faults=json.dumps(faults))
    return tables.find_batch(store, batch)


def submit(store: Store, batch: Batch, lines: Sequence[tuple[str, Line]], position: int) -> bool:
    """Make jobs of lines, each in its model's queue; always True.

    Raises Refused.
    """
    if tables.find_batch(store, batch.id).state != IN_PROGRESS:
        return True  # it was cancelled meanwhile
    store.check_room(sum(len(line.body) for _, line in lines), len(lines))
    for model, line in lines:
        own_id, body = new_id(), line.body
        kept: bytes | None = body
        if len(body) > FILE_BYTES:
            write_file(path_of(store.directory, own_id, "request"), body)
            store.sync_bodies()
            kept = None
        row = Submission(
            own_id,
            batch.owner,
            None,
            b"",
            model,
            batch.endpoint,
            "",
            _HEADERS,
            kept,
            len(body),
        )
        store.keep(row)
        store.execute("INSERT INTO held VALUES(?,?,?)", (own_id, batch.id, line.custom_id))
    tables.change(store, batch.id, position=position)
    return True


def refuse(store: Store, batch: Batch, lines: Sequence[Line], position: int) -> bool:
    """Answer lines that cannot become jobs."""
    with _Answers(store, batch) as answers:
        for line in lines:
            answers.error(line.custom_id, new_id(), *_UNANSWERED[batch.state])
    _count(store, batch, answers, position=position)
    return True


def _count(store: Store, batch: Batch, answers: _Answers, **values: Any) -> None:
    values |= {
        "completed": batch.completed + answers.completed,
        "failed": batch.failed + answers.failed,
    }
    tables.change(store, batch.id, **values)


def collect(store: Store, batch: str) -> Progress:
    """Write the responses of ended lines, and remove their jobs."""
    row = tables.find_batch(store, batch)
    if row.state == IN_PROGRESS and row.expires < time.time():
        row = tables.enter(store, batch, EXPIRING)
    if row.state in ENDS or row.output is None:
        return Progress(row, 0, 0)
    ended = store.execute(
        f"SELECT {_JOB}, held.label FROM held JOIN jobs ON jobs.id=held.job WHERE held.holder=? "
        "AND jobs.ended IS NOT NULL ORDER BY jobs.number LIMIT ?",
        (batch, _COLLECTED_AT_ONCE),
    ).fetchall()
    if ended:
        with _Answers(store, row) as answers:
            for *fields, custom_id in ended:
                _write(answers, row, custom_id, Job(*fields))
        _count(store, row, answers)
    for job, *_ in ended:
        store.execute("DELETE FROM held WHERE job=?", (job,))
        store.drop(job)
    statement = "SELECT COUNT(*) FROM held WHERE holder=?"
    [under_way] = store.execute(statement, (batch,)).fetchone()
    return Progress(tables.find_batch(store, batch), under_way, len(ended))


def _write(answers: _Answers, batch: Batch, custom_id: str, job: Job) -> None:
    if job.state == CANCELLED:
        code, message = _UNANSWERED.get(batch.state, (_CODE, "The request was cancelled."))
        answers.error(custom_id, job.id, code, message)
    elif job.reply_bytes and _is_json(job):
        answers.answer(custom_id, job)
    else:
        answers.error(custom_id, job.id, _CODE, job.reason or "The answer is not JSON.")


def _is_json(job: Job) -> bool:
    headers = dict(json.loads(job.reply_headers or "[]"))
    return str(headers.get("content-type", "")).startswith(_JSON)


def cancel_jobs(store: Store, batch: str) -> list[str]:
    """Cancel the lines that are jobs now; return those that are executing."""
    of_batch = "id IN (SELECT job FROM held WHERE holder=?)"
    running = store.execute(f"SELECT id FROM jobs WHERE {of_batch} AND state=?", (batch, RUNNING))
    ids = [row[0] for row in running]
    store.execute(
        f"UPDATE jobs SET state=?, ended=? WHERE {of_batch} AND state IN (?,?)",
        (CANCELLED, time.time(), batch, QUEUED, RUNNING),
    )
    return ids


_AFTER = {FINALIZING: COMPLETED, CANCELLING: CANCELLED, EXPIRING: EXPIRED}


def end(store: Store, batch: str) -> Batch:
    """End a batch after its last line has an answer; show its files, if they are not empty."""
    row = tables.find_batch(store, batch)
    if row.state == IN_PROGRESS:
        return tables.enter(store, batch, FINALIZING)
    values: dict[str, Any] = {}
    for name, file in (("output", row.output), ("error", row.error)):
        if file is None:
            continue
        if tables.find_file(store, file).bytes:
            tables.show_file(store, file, row.keep_s)
        else:
            tables.remove_file(store, file)
            values[name] = None
    return tables.enter(store, batch, _AFTER[row.state], **values)


def cancel(store: Store, batch: str, owner: str | None) -> Batch:
    """Begin to cancel a batch, unless it has ended. Raises Refused."""
    row = tables.find_batch(store, batch, owner)
    if row.state in (VALIDATING, IN_PROGRESS, FINALIZING):
        return tables.enter(store, batch, CANCELLING)
    return row
