"""The process of jobs: its socket, and the work of its parts."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from zmqtriton.sdk.frontend import Gateway
from zmqtriton.sdk.process import Service
from zmqtriton.sdk.wire import Unavailable
from zmqtriton_extras.jobs import JobsOptions, messages
from zmqtriton_extras.jobs.messages import SERVICE, Body, Contents, Document
from zmqtriton_extras.jobs.process.clients import Clients, Part, RoomKind
from zmqtriton_extras.jobs.process.running import Running
from zmqtriton_extras.jobs.process.store import Limits, Refused
from zmqtriton_extras.jobs.process.store_thread import StoreThread, refusal_of
from zmqtriton_extras.jobs.process.webhooks.receivers import Allowed
from zmqtriton_extras.jobs.process.webhooks.sending import Sending

_log = logging.getLogger(__name__)

#: The bytes of each connection that are here and wait to be read.
_READ_BYTES = 64 << 10
#: Seconds for an earlier process to release the directory.
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
        options = gateway.settings.options_of("jobs", JobsOptions)
        directory = Path(gateway.settings.server.state_directory or _default_root(), SERVICE)
        limits = Limits(options.jobs_keep_secs, options.jobs_max_bytes)
        self._store = StoreThread(directory, limits, [room.prepare for room in rooms])
        self._running = Running(gateway, self._store)
        self._rooms = [room.make(gateway, self._store, self._running) for room in rooms]
        receivers = Allowed(options.webhook_allow)
        agent = f"zmqtriton/{gateway.settings.server.zmqtriton_version}"
        self._sending = Sending(self._store, receivers, options.webhook_secret_file, agent)
        clients = Clients(self._store, self._running, receivers, self._sending)
        self._verbs = dict(clients.verbs)
        for room in self._rooms:
            self._verbs |= room.verbs
        self._is_leaving = self._is_working = False
        self._store.opened.add_done_callback(lambda _: self._follow())
        self._server: asyncio.Server
        self._is_busy = 0

    def _follow(self) -> None:
        """Let all parts work while the store is open and the server does not leave."""
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
        except (OSError, EOFError, Unavailable):
            return  # it has left, or there is no thread for it
        finally:
            writer.close()

    async def _answer(self, document: Document, body: Body, writer: asyncio.StreamWriter) -> None:
        contents: Contents | bytes = b""
        try:
            await self._wait_for_store()
            reply, contents = await self._verbs[document["verb"]](document, body)
        except ConnectionError:
            raise
        except (Refused, OSError, Unavailable, sqlite3.Error) as error:
            status, text = _refusal(error).args
            reply = {"refusal": status, "reason": text}
        await body.drop()
        skip = document.get("skip", 0)  # an earlier process has sent this
        if isinstance(contents, Contents):
            rest = Contents(contents.path, contents.begin + skip, contents.size - skip)
            await messages.write_file(writer, reply, rest)
        else:
            await messages.write(writer, reply, [contents[skip:]])

    async def _wait_for_store(self) -> None:
        opened = self._store.opened
        if not opened.done() and self._store.problem is None:
            await asyncio.wait((opened,), timeout=_OPEN_WITHIN_S)
        if not opened.done():
            raise self._store.problem or Refused(503, _NOT_YET)


def _refusal(error: Exception) -> Refused:
    """Return the refusal for a client after an error."""
    refusal = refusal_of(error)
    if isinstance(refusal, Refused):
        return refusal
    _log.error("jobs cannot be read or written: %s", error)
    return Refused(500, _UNUSABLE)


def _default_root() -> str:
    from zmqtriton.sdk.models import state_root  # seldom asked for

    return state_root()
