"""The webhooks on disk, beside their jobs: receivers and tries.

A row is made with its job. When the job ends for any reason, the row becomes due in the same
transaction, so none is forgotten. A try is recorded before it is made, so a try that dies with the
process is repeated in time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import NamedTuple

#: States of a webhook: the job has not ended; tries go on; one has succeeded; all have failed.
PENDING, SENDING, DELIVERED, FAILED = "pending", "sending", "delivered", "failed"
#: Pause in seconds after the first try, and the maximum; each pause is twice the one before.
FIRST_AGAIN_S = 1.0
MAX_AGAIN_S = 3600.0
#: Seconds after the end of the job until its webhook is given up.
GIVE_UP_AFTER_S = 24 * 3600.0
#: Maximum seconds of a try.
TRY_WITHIN_S = 10.0
SCHEMA = """
CREATE TABLE IF NOT EXISTS webhooks(
  job TEXT PRIMARY KEY, url TEXT NOT NULL, receiver TEXT NOT NULL, state TEXT NOT NULL,
  message TEXT, ended REAL, due REAL, tries INTEGER NOT NULL DEFAULT 0, problem TEXT) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS due ON webhooks(receiver, due) WHERE state = 'sending';
CREATE TRIGGER IF NOT EXISTS job_ends AFTER UPDATE OF ended ON jobs
  WHEN old.ended IS NOT new.ended BEGIN
  UPDATE webhooks SET state = iif(new.ended IS NULL, 'pending', 'sending'), ended = new.ended,
    message = lower(hex(randomblob(16))), due = new.ended, tries = 0, problem = NULL
    WHERE job = new.id; END;
CREATE TRIGGER IF NOT EXISTS job_leaves AFTER DELETE ON jobs BEGIN
  DELETE FROM webhooks WHERE job = old.id; END;
"""
_ROW = "job, url, state, message, ended, due, tries, problem"


class Webhook(NamedTuple):
    job: str
    url: str
    state: str
    #: The id of what is sent, the same in each try.
    message: str | None
    ended: float | None
    #: When it is tried next.
    due: float | None
    tries: int
    problem: str | None


class WebhookRecords:
    """The webhooks in the store, in its thread and its transactions."""

    def __init__(self, database: sqlite3.Connection, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock
        database.executescript(SCHEMA)

    def add(self, job: str, url: str, receiver: str) -> None:
        self._database.execute(
            "INSERT INTO webhooks(job, url, receiver, state) VALUES (?,?,?,'pending')",
            (job, url, receiver),
        )

    def of(self, jobs: Sequence[str]) -> dict[str, Webhook]:
        """Return the webhooks of these jobs, by job; some jobs have none."""
        marks = ",".join("?" * len(jobs))
        rows = self._database.execute(f"SELECT {_ROW} FROM webhooks WHERE job IN ({marks})", jobs)
        return {row[0]: Webhook(*row) for row in rows}

    def due_receivers(self) -> list[str]:
        """Return the receivers that have a due try."""
        # steps from one to the next in the index, however many wait for each
        rows = self._database.execute(
            "WITH RECURSIVE r(name) AS (SELECT MIN(receiver) FROM webhooks WHERE state='sending' "
            "UNION ALL SELECT (SELECT MIN(receiver) FROM webhooks WHERE state='sending' AND "
            "receiver>name) FROM r WHERE name IS NOT NULL) SELECT name FROM r WHERE name IS NOT "
            "NULL AND EXISTS (SELECT 1 FROM webhooks WHERE state='sending' AND receiver=name AND "
            "due<=?)",
            (self._clock(),),
        )
        return [row[0] for row in rows]

    def claim(self, receiver: str) -> Webhook | None:
        """Begin a try of a receiver's earliest due webhook; None without one."""
        now_s = self._clock()
        row = self._database.execute(
            f"SELECT {_ROW} FROM webhooks WHERE state='sending' AND receiver=? AND due<=? "
            "ORDER BY due LIMIT 1",
            (receiver, now_s),
        ).fetchone()
        if row is None:
            return None
        webhook = Webhook(*row)
        tries = webhook.tries + 1
        self._database.execute(
            "UPDATE webhooks SET tries=?, due=? WHERE job=?",
            (tries, now_s + TRY_WITHIN_S + _pause_s(tries), webhook.job),
        )
        return webhook._replace(tries=tries)

    def end_try(self, webhook: Webhook, problem: str | None, is_last: bool = False) -> None:
        """Store the end of a try, unless its job was retried or removed before."""
        due_s = self._clock() + _pause_s(webhook.tries)
        is_over = is_last or due_s > (webhook.ended or 0.0) + GIVE_UP_AFTER_S
        state = DELIVERED if problem is None else FAILED if is_over else SENDING
        self._database.execute(
            "UPDATE webhooks SET state=?, due=?, problem=? WHERE job=? AND message=?",
            (state, due_s if state == SENDING else None, problem, webhook.job, webhook.message),
        )


def _pause_s(tries: int) -> float:
    """Return the pause after this many tries."""
    return float(min(FIRST_AGAIN_S * 2 ** min(tries - 1, 30), MAX_AGAIN_S))
