"""kill -9 of a stub in the middle of an execution: what its clients see, and when it is back."""

from __future__ import annotations

import os
import re
import signal
import time
from typing import NamedTuple

from tests.faults.load import Load, Outcome
from tests.support.journal import Record, executions, read_journal
from tests.support.server import Server
from tests.support.waiting import eventually

#: How long one execution of the model takes.
EXECUTION_MS = 30
#: Between two kills: a server takes an instance that dies more often for one that cannot work.
PAUSE_S = 2.5

_TEXT = re.compile(
    r"Failed to process the request\(s\) for model instance 'journal_0_0', message: "
    r"Stub process 'journal_0_0' is not healthy\. \(killed by SIGKILL\)"
)


class Death(NamedTuple):
    """One kill and what followed."""

    #: From the kill to the client's error.
    error_ms: float
    #: From the kill to the first answer of the new stub, without the execution itself.
    back_ms: float


def _open_execution(server: Server) -> Record | None:
    records = read_journal(server.journal)
    return records[-1] if records and records[-1].event == "start" else None


def kill_in_execution(server: Server) -> tuple[Record, int] | None:
    """Kills the stub; the execution that it was in, and when. None if it was between two."""
    record = eventually(lambda: _open_execution(server), 30, "an execution")
    killed_ns = time.monotonic_ns()
    os.kill(record.pid, signal.SIGKILL)
    eventually(lambda: not os.path.exists(f"/proc/{record.pid}"), 30, "the stub's end")
    last = [r for r in read_journal(server.journal) if r.pid == record.pid][-1]
    return (last, killed_ns) if last.event == "start" else None


def kill_and_measure(server: Server, load: Load) -> Death | None:
    """One round, under a load that goes on. None: the kill met no execution."""
    hit = kill_in_execution(server)
    if hit is None:
        return None
    record, killed_ns = hit

    def answered() -> Outcome | None:
        return next((o for o in load.outcomes if o.id == record.id), None)

    def back() -> Record | None:
        news = [r for r in read_journal(server.journal) if r.ns > killed_ns]
        return next((r for r in news if r.event == "start" and r.pid != record.pid), None)

    failed = eventually(answered, 30, f"an answer to {record.id}")
    assert failed.status == 503, failed
    assert _TEXT.search(failed.text), failed
    first = eventually(back, 60, "a new stub that executes")
    return Death((failed.ended_ns - killed_ns) / 1e6, (first.ns - killed_ns) / 1e6)


def check(server: Server, outcomes: list[Outcome], hits: int, kills: int) -> None:
    """Assert that everything but what was killed succeeded, and nothing was executed twice.

    A kill that met no execution of the journal may still have met a request, before its start or
    after its end was written down.
    """
    assert len({o.id for o in outcomes}) == len(outcomes)
    wrong = [o for o in outcomes if not o.is_right]
    assert hits <= len(wrong) <= kills, wrong
    assert [o for o in wrong if o.status != 503] == []
    assert not {own_id: n for own_id, n in executions(server.journal).items() if n > 1}
