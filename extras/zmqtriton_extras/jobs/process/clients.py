"""Answers questions of clients and the operator about jobs; rooms answer questions of their own.

A room is a feature built on jobs, such as batches; jobs themselves do not know it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from zmqtriton.sdk.frontend import Gateway
from zmqtriton_extras.jobs.messages import DISK, Body, Contents, Document, Message
from zmqtriton_extras.jobs.process.responses import EVENTS, describe, read_page
from zmqtriton_extras.jobs.process.running import Running
from zmqtriton_extras.jobs.process.store import (
    FILE_BYTES,
    QUEUED,
    RUNNING,
    Job,
    Refused,
    Store,
    Submission,
    path_of,
)
from zmqtriton_extras.jobs.process.store_thread import StoreThread
from zmqtriton_extras.jobs.process.webhooks.receivers import Allowed, NotAllowed
from zmqtriton_extras.jobs.process.webhooks.records import Webhook
from zmqtriton_extras.jobs.process.webhooks.sending import Sending

#: Answers a question. Raises Refused.
Handler = Callable[[Document, Body], Awaitable[Message]]


class Part(Protocol):
    """A part of the process, which works until the server leaves."""

    def begin(self) -> None:
        """Begin or continue work; the store is open."""

    def leave(self) -> None:
        """Begin no more work."""


class Room(Part, Protocol):
    """A part that makes jobs, and keeps tables of its own next to them."""

    #: The questions of the processes of HTTP.
    verbs: Mapping[str, Handler]


class RoomKind(NamedTuple):
    #: Makes its tables when the store is opened.
    prepare: Callable[[Store], None]
    make: Callable[[Gateway, StoreThread, Running], Room]


class Clients:
    def __init__(
        self, store: StoreThread, running: Running, allowed: Allowed, sending: Sending
    ) -> None:
        self._store = store
        self._running = running
        self._allowed = allowed
        self._sending = sending
        #: Each may be asked again: what it makes has its id, and what it ends has ended.
        self.verbs: Mapping[str, Handler] = {
            "submit": self._submit,
            "list": self._list,
            "describe": self._describe,
            "show": self._show,
            "responses": self._responses,
            "cancel": self._cancel,
            "remove": self._remove,
            "retry": partial(self._change, Store.retry),
            "purge": partial(self._change, Store.purge),
            "figures": self._figures,
        }

    # -------------------------------------------------------------- submission

    async def _submit(self, document: Document, body: Body) -> Message:
        submission = await self._receive(document, body)
        job: Job | None = None
        try:
            job = await self._running.submit(submission)
        finally:
            if submission.body is None and (job is None or job.id != submission.id):
                self._store.do(partial(Store.discard, job=submission.id))
        return {"id": job.id, "state": job.state, "url": f"/v2/jobs/{job.id}"}, b""

    async def _receive(self, document: Document, body: Body) -> Submission:
        """Receive a request; a large one is written to its file as it arrives."""
        webhook = document["webhook"] or ""
        receiver = self._receiver_of(webhook) if webhook else ""
        own_id, size = document["id"], body.left
        hashed = sha256(f"{document['path']}{webhook}".encode())
        kept: bytes | None = None
        if size <= FILE_BYTES:
            kept = b"".join([part async for part in body.parts()])
            hashed.update(kept)
        else:
            await self._store.do(partial(Store.check_room, size=size))
            await self._receive_file(own_id, body, hashed)
        return Submission(
            own_id,
            document["owner"],
            document["key"],
            hashed.digest(),
            document["model"],
            document["path"],
            document["query"],
            json.dumps(document["headers"]),
            kept,
            size,
            webhook,
            receiver,
        )

    def _receiver_of(self, webhook: str) -> str:
        """Return the name of a webhook's receiver. Raises Refused."""
        try:
            return self._allowed.find(webhook).authority
        except NotAllowed as error:
            raise Refused(400, str(error)) from error

    async def _receive_file(self, own_id: str, body: Body, hashed: Any) -> None:
        path = path_of(self._store.directory, own_id, "request")
        try:
            file: Any = await DISK.run(open, path, "xb")
        except FileExistsError:
            return  # this is asked again: an earlier process has kept all of it
        try:
            async for part in body.parts():
                hashed.update(part)
                await DISK.run(file.write, part)
            await DISK.run(_keep, file)
            await self._store.do(Store.sync_bodies)
        except BaseException:
            path.unlink()
            raise
        finally:
            file.close()

    # -------------------------------------------------------------------- jobs

    async def _list(self, document: Document, body: Body) -> Message:
        owner = document["owner"]
        state, limit = document.get("state", ""), document.get("limit", 100)
        newest = partial(Store.newest, owner=owner, state=state, limit=limit)
        jobs, webhooks = await self._store.do(partial(_listed, newest=newest))
        rows = [describe(job, webhook=webhooks.get(job.id)) for job in jobs]
        if owner is None:  # the operator's
            for row, job in zip(rows, jobs, strict=True):
                row |= {"token": job.owner, "bytes": job.body_bytes + job.reply_bytes}
        return {"jobs": rows}, b""

    async def _describe(self, document: Document, body: Body) -> Message:
        """Answer with the state of a job."""
        _, status = await self._status(document)
        return {"job": status}, b""

    async def _show(self, document: Document, body: Body) -> Message:
        """Answer with the state of a job, and its response."""
        job, status = await self._status(document)
        contents: Contents | bytes = job.reply or b""
        if job.reply is None and job.reply_bytes:
            contents = Contents(self._reply_file(job), 0, job.reply_bytes)
        return {"job": status, "headers": json.loads(job.reply_headers or "[]")}, contents

    async def _status(self, document: Document) -> tuple[Job, Document]:
        find = partial(_placed, job=document["id"], owner=document["owner"])
        job, place, webhook = await self._store.do(find)
        status = describe(job, place, webhook)
        if job.state == RUNNING and (progress := self._running.progress(job.id)) is not None:
            status["progress"] = progress
        return job, status

    async def _responses(self, document: Document, body: Body) -> Message:
        """Answer with the responses of a stream from a position on."""
        find = partial(Store.find, job=document["id"], owner=document["owner"])
        job, after = await self._store.do(find), document["after"]
        page: Document = {"state": job.state, "tries": job.tries, "next": after, "responses": []}
        reply = self._running.reply(job.id) if job.state == RUNNING else None
        if reply is not None:
            headers, read = reply.headers, reply.read
        elif job.reply_bytes:
            headers = dict(json.loads(job.reply_headers or "[]"))
            read = partial(_read_reply, job.reply, self._reply_file(job))
        else:
            return page, b""
        if headers and not headers.get("content-type", "").startswith(EVENTS):
            result = f"/v2/jobs/{job.id}/result"
            raise Refused(409, f"the job has one response, and no stream: read {result}")
        try:
            if reply is not None:
                responses, end = read_page(read, after, False)
            else:
                responses, end = await DISK.run(read_page, read, after, True)
        except ValueError as error:
            raise Refused(409, str(error)) from error
        texts = [response.decode(errors="replace") for response in responses]
        return {**page, "next": end, "responses": texts}, b""

    async def _cancel(self, document: Document, body: Body) -> Message:
        cancel = partial(Store.cancel, job=document["id"], owner=document["owner"])
        job = await self._store.do(cancel)
        self._running.cancel(job.id)
        return {"job": describe(job)}, b""

    async def _remove(self, document: Document, body: Body) -> Message:
        remove = partial(Store.remove, job=document["id"], owner=document["owner"])
        await self._store.do(remove)
        return {}, b""

    def _reply_file(self, job: Job) -> Path:
        return path_of(self._store.directory, job.id, "reply")

    # ----------------------------------------------------------- the operator

    async def _change(
        self, change: Callable[[Store, Sequence[str]], int], document: Document, body: Body
    ) -> Message:
        """Retry or purge jobs: those with ids, or some in states."""

        def work(store: Store) -> int:
            return change(store, document["ids"] or store.some(document["states"]))

        count = await self._store.do(work)
        self._running.wake()
        return {"count": count}, b""

    async def _figures(self, document: Document, body: Body) -> Message:
        """Answer with the numbers of jobs, and the ages of the oldest ones, for metrics."""
        counts, ages, has_room = await self._store.do(
            lambda store: (store.counts(), store.ages(), store.has_room())
        )
        rows = [[model, state, jobs] for (model, state), jobs in counts.items()]
        tries = dict(self._sending.counts)
        return {"counts": rows, "ages": ages, "tries": tries, "has_room": has_room}, b""


def _placed(store: Store, job: str, owner: str | None) -> tuple[Job, int, Webhook | None]:
    row = store.find(job, owner)
    place = store.place(row) if row.state == QUEUED else 0
    return row, place, store.webhooks.of([job]).get(job)


def _listed(
    store: Store, newest: Callable[[Store], list[Job]]
) -> tuple[list[Job], dict[str, Webhook]]:
    jobs = newest(store)
    return jobs, store.webhooks.of([job.id for job in jobs])


def _read_reply(reply: bytes | None, path: Path, begin: int, size: int) -> bytes:
    """Return a part of the response of an ended job."""
    if reply is not None:
        return reply[begin : begin + size]
    with path.open("rb") as file:
        file.seek(begin)
        return file.read(size)


def _keep(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
