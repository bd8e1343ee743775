"""Reads what the model `journal` wrote about its executions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.support.server import Server, tensor


class Record(NamedTuple):
    """The start or the end of one execution."""

    event: str
    id: str
    pid: int
    #: On the clock that time.monotonic_ns() reads, which all processes share.
    ns: int


#: As milliseconds of an execution: until it is let go of.
UNTIL_RELEASED = -1


def journal_inputs(own_id: str, milliseconds: int) -> list[dict[str, Any]]:
    """The inputs of a request to `journal` in JSON."""
    return [tensor("ID", "BYTES", [own_id], [1, 1]), tensor("MS", "INT32", [milliseconds], [1, 1])]


def journal_arrays(own_id: str, milliseconds: int) -> dict[str, np.ndarray[Any, Any]]:
    """The same for tritonclient."""
    return {
        "ID": np.array([[own_id.encode()]], np.object_),
        "MS": np.array([[milliseconds]], np.int32),
    }


def ask_journal(server: Server, own_id: str, milliseconds: int, model: str = "journal") -> int:
    """Return the status of an execution."""
    return server.infer_json(model, *journal_inputs(own_id, milliseconds))[0]


def release_execution(journal: Path, own_id: str) -> None:
    """Ends an execution of this id that is held, or will be."""
    Path(f"{journal}.{own_id}").touch()


def has_seen_cancellation(journal: Path, own_id: str) -> bool:
    """Return True if an execution that is held knows that nobody waits for it."""
    return Path(f"{journal}.{own_id}.cancelled").exists()


def read_journal(path: Path) -> list[Record]:
    """All records in order, but for a line that is being written; none if nothing was executed."""
    if not path.exists():
        return []
    whole = path.read_text("utf-8").rpartition("\n")[0]
    return [Record(**json.loads(line)) for line in whole.splitlines()]


def executions(path: Path) -> dict[str, int]:
    """Return how often each id was begun."""
    counts: dict[str, int] = {}
    for record in read_journal(path):
        if record.event == "start":
            counts[record.id] = counts.get(record.id, 0) + 1
    return counts
