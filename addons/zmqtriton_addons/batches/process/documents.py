"""Files and batches as clients see them, in OpenAI's form."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from zmqtriton_addons.batches.process.tables import ENDS, EXPIRING, FINALIZING, Batch, File
from zmqtriton_addons.jobs.messages import Document

_T = TypeVar("_T", File, Batch)
_TIMES = (
    "in_progress",
    "finalizing",
    "completed",
    "failed",
    "expired",
    "cancelling",
    "cancelled",
)


def of_file(file: File) -> Document:
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.bytes,
        "created_at": int(file.created),
        "expires_at": int(file.expires),
        "filename": file.name,
        "purpose": file.purpose,
        "status": "processed",
    }


def of_batch(batch: Batch) -> Document:
    times = json.loads(batch.times)
    has_ended = batch.state in ENDS
    state = FINALIZING if batch.state == EXPIRING else batch.state
    document: dict[str, Any] = {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "errors": None,
        "input_file_id": batch.input,
        "completion_window": batch.window,
        "status": state,
        "output_file_id": batch.output if has_ended else None,
        "error_file_id": batch.error if has_ended else None,
        "created_at": int(batch.created),
        "expires_at": int(batch.expires),
        **{f"{name}_at": int(times[name]) if name in times else None for name in _TIMES},
        "request_counts": {
            "total": batch.total,
            "completed": batch.completed,
            "failed": batch.failed,
        },
        "metadata": json.loads(batch.metadata),
    }
    if batch.faults is not None:
        document["errors"] = {"object": "list", "data": json.loads(batch.faults)}
    return document


def of_list(rows: Sequence[_T], describe: Callable[[_T], Document], has_more: bool) -> Document:
    return {
        "object": "list",
        "data": [describe(row) for row in rows],
        "first_id": rows[0].id if rows else None,
        "last_id": rows[-1].id if rows else None,
        "has_more": has_more,
    }
