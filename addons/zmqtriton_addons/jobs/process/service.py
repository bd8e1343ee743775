"""The process of jobs: what the processes of HTTP and the operator's commands ask of it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from zmqtriton_addons.jobs import messages
from zmqtriton_addons.jobs.messages import SERVICE, Body, Contents, Document
from zmqtriton_addons.jobs.process.documents import describe
from zmqtriton_addons.jobs.process.job_ids import new_id
from zmqtriton_addons.jobs.process.responses import EVENTS, read_page
from zmqtriton_addons.jobs.process.rooms import Part, RoomKind
from zmqtriton_addons.jobs.process.running import Running
from zmqtriton_addons.jobs.process.store import (
    FILE_BYTES,
    QUEUED,
    RUNNING,
    Job,
    Limits,
    Refused,
    Store,
    Submission,
)
from zmqtriton_addons.jobs.process.store_thread import StoreThread, refusal_of
from zmqtriton_addons.jobs.process.webhooks.receivers import Allowed, NotAllowed
from zmqtriton_addons.jobs.process.webhooks.records import Webhook
from zmqtriton_addons.jobs.process.webhooks.sending import Sending
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.serving import Service

#: The bytes of each connection that are here and wait to be read.
_READ_BYTES = 64 << 10
#: For an earlier process to give the directory up.
_OPEN_WITHIN_S = 8.0
_NOT_YET = "another process still has the jobs; retry later"
_UNUSABLE = "the state directory cannot be used for jobs; the log says why"


class JobsService(Service):
    def __init__(
        self, gateway: Gateway, listener: socket.socket, rooms: Sequence[RoomKind] = ()
    ) -> None:
        """Set up with a bound socket."""
        self._listener = listener
        self._path = str(listener.getsockname())
        options = dict(gateway.settings.server.service_options)
        names = "state_directory jobs_keep_secs jobs_max_bytes webhook_allow webhook_secret_file"
        root, keep_s, max_bytes, allowed, secret_file = (
            json.loads(options[name]) for name in names.split()
        )
        self._directory = Path(root or _default_root(), SERVICE)
        limits = Limits(keep_s, max_bytes)
        self._store = StoreThread(self._directory, limits, [room.prepare for room in rooms])
        self._running = Running(gateway, self._store)
        self._rooms = [room.make(gateway, self._store, self._running) for room in rooms]
        self._verbs = {verb: act for room in self._rooms for verb, act in room.verbs.items()}
        self._allowed = Allowed(allowed)
        agent = f"zmqtriton/{gateway.settings.server.zmqtriton_version}"
        self._sending = Sending(self._store, self._allowed, secret_file, agent)
        self._is_leaving = self._is_working = False
        self._store.opened.add_done_callback(lambda _: self._follow())
        self._server: asyncio.Server
        self._is_busy = 0

    def _follow(self) -> None:
        """Have all parts work while the store is open, and the server does not leave."""
        opened = self._store.opened
        is_working = opened.done() and not (opened.cancelled() or self._is_leaving)
        if is_working == self._is_working:
            return
        self._is_working = is_working
        parts: tuple[Part, ...] = (self._running, self._sending, *self._rooms)
        for part in parts:
            if is_working:
                part.begin()
            else:
                part.leave()

    async def open(self) -> Sequence[tuple[str, str]]:
        self._server = await asyncio.start_unix_server(
            self._serve, sock=self._listener, limit=_READ_BYTES, backlog=socket.SOMAXCONN
        )
        return [("Jobs", self._path)]

    def leave(self, is_leaving: bool) -> None:
        self._is_leaving = is_leaving
        self._follow()

    async def end(self, within_s: float) -> None:
        self.leave(True)
        with suppress(OSError):  # the directory is gone
            os.unlink(self._path)

    def end_idle(self) -> bool:
        return self._running.is_idle and not self._is_busy

    async def close(self) -> None:
        self._running.close()
        self._sending.close()
        self._server.close()
        await self._store.close()

    # ------------------------------------------------------------ the clients

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                document, size = await messages.read_head(reader)
                self._is_busy += 1
                try:
                    await self._answer(document, Body(reader, size), writer)
                finally:
                    self._is_busy -= 1
        except (OSError, EOFError):
            return  # it has left
        finally:
            writer.close()

    async def _answer(self, document: Document, body: Body, writer: asyncio.StreamWriter) -> None:
        reply: Document
        contents: Contents | None = None
        data = b""
        try:
            await self._wait_for_store()
            verb = document["verb"]
            if verb == "submit":
                reply = await self._submit(await self._receive(document, body))
            elif verb in self._verbs:
                reply, contents = await self._verbs[verb](document, body)
            else:
                reply, job = await self._perform(document)
                if job is not None and job.reply is not None:
                    data = job.reply
                elif job is not None and job.reply_bytes:
                    path = await self._store.do(partial(Store.path_of, job=job.id, kind="reply"))
                    contents = Contents(path, 0, job.reply_bytes)
        except Refused as refused:
            status, text = refused.args
            reply = {"refusal": status, "reason": text}
        await body.drop()
        if contents is None:
            await messages.write(writer, reply, [data] if data else [])
        else:
            await messages.write_file(writer, reply, contents)

    async def _wait_for_store(self) -> None:
        opened = self._store.opened
        if not opened.done() and self._store.problem is None:
            await asyncio.wait((opened,), timeout=_OPEN_WITHIN_S)
        if not opened.done():
            problem = refusal_of(self._store.problem or Refused(503, _NOT_YET))
            raise problem if isinstance(problem, Refused) else Refused(500, _UNUSABLE)

    async def _receive(self, document: Document, body: Body) -> Submission:
        """Receive a request; a large one goes to its file as it comes."""
        webhook = document.get("webhook") or ""
        receiver = self._receiver_of(webhook) if webhook else ""
        own_id, size = new_id(), body.left
        hashed = sha256(f"{document['path']}{webhook}".encode())
        kept: bytes | None = None
        if size <= FILE_BYTES:
            kept = b"".join([part async for part in body.parts()])
            hashed.update(kept)
        else:
            await self._store.do(partial(Store.check_room, size=size))
            await self._receive_file(own_id, body, hashed)
        return Submission(
            *(own_id, document["owner"], document["key"], hashed.digest(), document["model"]),
            *(document["path"], document["query"], json.dumps(document["headers"]), kept, size),
            *(webhook, receiver),
        )

    def _receiver_of(self, webhook: str) -> str:
        """Return whom a webhook is for. Raises Refused."""
        try:
            return self._allowed.find(webhook).authority
        except NotAllowed as error:
            raise Refused(400, str(error)) from error

    async def _receive_file(self, own_id: str, body: Body, hashed: Any) -> None:
        path = await self._store.do(partial(Store.path_of, job=own_id, kind="request"))
        loop = asyncio.get_running_loop()
        file: Any = await loop.run_in_executor(None, partial(open, path, "xb"))
        try:
            async for part in body.parts():
                hashed.update(part)
                await loop.run_in_executor(None, file.write, part)
            await loop.run_in_executor(None, _keep, file)
            await self._store.do(Store.sync_bodies)
        except BaseException:
            path.unlink()
            raise
        finally:
            file.close()

    async def _submit(self, submission: Submission) -> Document:
        job = await self._running.submit(submission)
        return {"id": job.id, "state": job.state, "url": f"/v2/jobs/{job.id}"}

    async def _perform(self, document: Document) -> tuple[Document, Job | None]:
        verb, owner = document["verb"], document["owner"]
        if verb == "list":
            state, limit = document.get("state", ""), document.get("limit", 100)
            newest = partial(Store.newest, owner=owner, state=state, limit=limit)
            jobs, webhooks = await self._store.do(partial(_listed, newest=newest))
            shown = [describe(job, webhook=webhooks.get(job.id)) for job in jobs]
            if owner is None:  # the operator's
                for document, job in zip(shown, jobs, strict=True):
                    document["token"], document["bytes"] = (
                        job.owner,
                        job.body_bytes + job.reply_bytes,
                    )
            return {"jobs": shown}, None
        if verb == "figures":
            return await self._store.do(_figures) | {"tries": dict(self._sending.counts)}, None
        if verb in ("retry", "purge"):
            reply = await self._store.do(partial(_change, document=document))
            self._running.wake()
            return reply, None
        if verb == "responses":
            job, _, _ = await self._store.do(partial(_placed, job=document["id"], owner=owner))
            return await self._read_responses(job, document["after"]), None
        if verb == "cancel":
            job = await self._store.do(partial(Store.cancel, job=document["id"], owner=owner))
            self._running.cancel(job.id)
            return {"job": describe(job)}, None
        job, place, webhook = await self._store.do(
            partial(_placed, job=document["id"], owner=owner)
        )
        status = describe(job, place, webhook)
        if job.state == RUNNING and (progress := self._running.progress(job.id)) is not None:
            status["progress"] = progress
        reply = {"job": status, "headers": json.loads(job.reply_headers or "[]")}
        return reply, job

    async def _read_responses(self, job: Job, after: int) -> Document:
        """Return the responses of a stream from a place on. Raises Refused."""
        document: Document = {"state": job.state, "tries": job.tries, "next": after}
        reply = self._running.reply(job.id) if job.state == RUNNING else None
        if reply is not None:
            headers, read = reply.headers, reply.read
        elif job.reply_bytes:
            headers = dict(json.loads(job.reply_headers or "[]"))
            path = await self._store.do(partial(Store.path_of, job=job.id, kind="reply"))
            read = partial(_read_reply, job.reply, path)
        else:
            return {**document, "responses": []}
        if headers and not headers.get("content-type", "").startswith(EVENTS):
            place = f"/v2/jobs/{job.id}/result"
            raise Refused(409, f"the answer is no stream of responses: see {place}")
        try:
            if reply is not None:
                page = read_page(read, after, False)
            else:
                page = await asyncio.to_thread(read_page, read, after, True)
        except ValueError as error:
            raise Refused(409, str(error)) from error
        responses = [response.decode(errors="replace") for response in page.responses]
        return {**document, "next": page.next, "responses": responses}


def _change(store: Store, document: Document) -> Document:
    """Retry or purge jobs for the operator: those with ids, or some in states."""
    jobs = document["ids"] or store.some(document["states"])
    change = store.retry if document["verb"] == "retry" else store.purge
    return {"count": change(jobs)}


def _figures(store: Store) -> Document:
    """Return the numbers of jobs, and the ages of the oldest, for metrics."""
    counts = [[model, state, jobs] for (model, state), jobs in store.counts().items()]
    return {"counts": counts, "ages": store.ages()}


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
    """Return a part of the answer of a job that has ended."""
    if reply is not None:
        return reply[begin : begin + size]
    with path.open("rb") as file:
        file.seek(begin)
        return file.read(size)


def _keep(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def _default_root() -> str:
    from zmqtriton.repository import default_root  # seldom asked for

    return default_root()
