"""The files and batches of clients: their requests, and the documents that answer them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from zmqtriton.sdk.frontend import Gateway
from zmqtriton_extras.jobs.batches.process import results, tables
from zmqtriton_extras.jobs.batches.process.tables import (
    ENDS,
    EXPIRING,
    FINALIZING,
    VALIDATING,
    Batch,
    File,
)
from zmqtriton_extras.jobs.batches.process.under_way import UnderWay
from zmqtriton_extras.jobs.batches.process.uploads import Uploads, keep_s_of
from zmqtriton_extras.jobs.messages import Body, Contents, Document, Message
from zmqtriton_extras.jobs.process.clients import Handler, RoomKind
from zmqtriton_extras.jobs.process.running import Running
from zmqtriton_extras.jobs.process.store import Refused, Store
from zmqtriton_extras.jobs.process.store_thread import StoreThread

_ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings")
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


class Batches:
    def __init__(self, gateway: Gateway, store: StoreThread, running: Running) -> None:
        self._store = store
        self._uploads = Uploads(store)
        self._under_way = UnderWay(gateway, store, running)
        self.verbs: Mapping[str, Handler] = {
            "file create": self._create_file,
            "file list": self._list_files,
            "file show": self._show_file,
            "file content": self._read_file,
            "file delete": self._delete_file,
            "batch create": self._create_batch,
            "batch list": self._list_batches,
            "batch show": self._show_batch,
            "batch cancel": self._cancel_batch,
        }

    def begin(self) -> None:
        self._under_way.begin()

    def leave(self) -> None:
        self._under_way.leave()

    async def _create_file(self, document: Document, body: Body) -> Message:
        owner, content_type = document["owner"], document["content_type"]
        return of_file(await self._uploads.receive(owner, content_type, body)), b""

    async def _list_files(self, document: Document, body: Body) -> Message:
        names = ("owner", "purpose", "order", "limit", "after")
        work = partial(tables.list_files, **{name: document[name] for name in names})
        rows, has_more = await self._store.do(work)
        return of_list(rows, of_file, has_more), b""

    async def _show_file(self, document: Document, body: Body) -> Message:
        work = partial(tables.find_file, file=document["id"], owner=document["owner"])
        return of_file(await self._store.do(work)), b""

    async def _read_file(self, document: Document, body: Body) -> Message:
        def contents(store: Store) -> Contents:
            file = tables.find_file(store, document["id"], document["owner"])
            return Contents(tables.path_of(store.directory, file.id), file.begin, file.bytes)

        return {}, await self._store.do(contents)

    async def _delete_file(self, document: Document, body: Body) -> Message:
        work = partial(tables.delete_file, file=document["id"], owner=document["owner"])
        await self._store.do(work)
        return {"id": document["id"], "object": "file", "deleted": True}, b""

    async def _create_batch(self, document: Document, body: Body) -> Message:
        endpoint, now_s = document["endpoint"], time.time()
        if endpoint not in _ENDPOINTS:
            raise Refused(400, f"'endpoint' must be one of {', '.join(_ENDPOINTS)}")
        expiry = document["output_expires_after"]
        new: dict[str, Any] = dict.fromkeys(Batch._fields)
        new |= {
            "id": document["id"],
            "owner": document["owner"],
            "endpoint": endpoint,
            "input": document["input"],
            "window": document["window"],
            "metadata": json.dumps(document["metadata"]),
            "state": VALIDATING,
            "created": now_s,
            "expires": now_s + document["window_s"],
            "keep_s": keep_s_of(
                "output_expires_after", expiry.get("anchor"), expiry.get("seconds")
            ),
        }
        batch = await self._store.do(partial(tables.add_batch, batch=Batch(**new)))
        self._under_way.wake()
        return of_batch(batch), b""

    async def _list_batches(self, document: Document, body: Body) -> Message:
        names = ("owner", "limit", "after")
        work = partial(tables.list_batches, **{name: document[name] for name in names})
        rows, has_more = await self._store.do(work)
        return of_list(rows, partial(_describe, document), has_more), b""

    async def _show_batch(self, document: Document, body: Body) -> Message:
        work = partial(tables.find_batch, batch=document["id"], owner=document["owner"])
        return of_batch(await self._store.do(work)), b""

    async def _cancel_batch(self, document: Document, body: Body) -> Message:
        work = partial(results.cancel, batch=document["id"], owner=document["owner"])
        batch = await self._store.do(work)
        self._under_way.cancel(batch.id)
        return _describe(document, batch), b""


def _describe(question: Document, batch: Batch) -> Document:
    """Describe a batch; the operator (no owner) also sees the batch's owner."""
    more = {"token": batch.owner} if question["owner"] is None else {}
    return of_batch(batch) | more


ROOM = RoomKind(tables.prepare, Batches)
