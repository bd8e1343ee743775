"""The way from a process of HTTP to the process of jobs.

A connection has one request at a time; idle connections are kept. Until the process listens, or
while it is being replaced, a request waits for some time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from typing import NamedTuple

from zmqtriton.sdk.frontend import Gateway
from zmqtriton.sdk.process import local_service_path
from zmqtriton.sdk.wire import Unavailable
from zmqtriton_extras.jobs import messages
from zmqtriton_extras.jobs.messages import PART_BYTES, SERVICE, Document

#: Seconds for the process of jobs to start, or to be replaced.
_WITHIN_S = 10.0
_AGAIN_S = 0.05
_MAX_IDLE = 16
_AWAY = "the process of jobs does not answer; retry later"

_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Answer(NamedTuple):
    question: Document
    document: Document
    #: Number of bytes after the message, which must be read or dropped.
    size: int
    channel: Channel
    connection: _Connection

    @property
    def has_bytes(self) -> bool:
        return self.size > 0

    @property
    def content_type(self) -> str:
        return str(dict(self.document.get("headers", ())).get("content-type", ""))

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the bytes; if the process dies, the rest comes from the next process.

        Raises OSError, EOFError or Unavailable if the rest does not come.
        """
        connection, left, end_s = self.connection, self.size, 0.0
        loop = asyncio.get_running_loop()
        try:
            while left:
                try:
                    part = await connection[0].readexactly(min(left, PART_BYTES))
                except (OSError, EOFError):
                    connection[1].close()
                    end_s = end_s or loop.time() + _WITHIN_S
                    if loop.time() >= end_s:
                        raise
                    await asyncio.sleep(_AGAIN_S)
                    connection = await self.channel.ask_rest(self, left)
                    continue
                left, end_s = left - len(part), 0.0
                yield part
        finally:
            if left:
                connection[1].close()
            else:
                self.channel.keep(connection)

    async def drop(self) -> None:
        """Drop the bytes without reading them."""
        if self.size:
            self.connection[1].close()


class Channel:
    def __init__(self, path: str) -> None:
        self._path = path
        self._idle: list[_Connection] = []

    @classmethod
    def of(cls, gateway: Gateway) -> Channel:
        """Return a channel from a process with this gateway to the process of jobs."""
        return cls(local_service_path(gateway.settings.server.runtime_directory, SERVICE))

    def keep(self, connection: _Connection) -> None:
        """Keep an idle connection for the next question, or close it if there are enough."""
        reader, writer = connection
        if len(self._idle) < _MAX_IDLE and not (reader.at_eof() or writer.is_closing()):
            self._idle.append(connection)
        else:
            writer.close()

    async def ask(self, document: Document, body: Iterable[bytes] = ()) -> Answer:
        """Send a question, and return the answer. Raises Unavailable without one.

        If the process dies before it answers, the next one is asked: to repeat a question has no
        further effect.
        """
        write = partial(messages.write, parts=list(body))
        loop = asyncio.get_running_loop()
        end_s = loop.time() + _WITHIN_S
        while True:
            try:
                return await self._converse(document, write)
            except Unavailable:
                if loop.time() >= end_s:
                    raise
            await asyncio.sleep(_AGAIN_S)

    async def send_in_frames(self, document: Document, parts: AsyncIterator[bytes]) -> Answer:
        """Send a question with bytes as they arrive. Raises Unavailable, and errors of `parts`.

        On such an error the other end notices that the bytes are incomplete.
        """

        async def write(writer: asyncio.StreamWriter, document: Document) -> None:
            writer.write(messages.head(document, messages.IN_FRAMES))
            async for part in parts:
                if part:
                    writer.write(messages.frame(part))
                    await writer.drain()
            writer.write(messages.LAST_FRAME)

        return await self._converse(document, write)

    async def ask_rest(self, answer: Answer, size: int) -> _Connection:
        """Request the last bytes of an answer again. Raises Unavailable if it has changed."""
        rest = await self.ask({**answer.question, "skip": answer.size - size})
        if rest.size != size:
            await rest.drop()
            raise Unavailable(_AWAY)
        return rest.connection

    async def _converse(
        self,
        document: Document,
        write: Callable[[asyncio.StreamWriter, Document], Awaitable[None]],
    ) -> Answer:
        while self._idle:
            connection = self._idle.pop()
            if not connection[0].at_eof():
                break
            connection[1].close()
        else:
            connection = await self._connect()
        reader, writer = connection
        try:
            await write(writer, document)
            answer, size = await messages.read_head(reader)
        except (OSError, EOFError) as error:
            writer.close()
            raise Unavailable(_AWAY) from error
        except BaseException:
            writer.close()
            raise
        if not size:
            self.keep(connection)
        return Answer(document, answer, size, self, connection)

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + _WITHIN_S
        while True:
            try:
                return await asyncio.open_unix_connection(self._path, limit=PART_BYTES)
            except OSError as error:
                if loop.time() >= end_s:
                    raise Unavailable(_AWAY) from error
            await asyncio.sleep(_AGAIN_S)
