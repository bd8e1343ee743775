"""The body of a response of server-sent events: ready ones are sent in one chunk.

Made by generate's and by OpenAI's responders, iterated and closed by Falcon. It takes no more from
the gateway's stream while the connection is not writable, and closing it cancels the request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Generic, TypeVar

from zmqtriton_addons.generate.response import (
    as_event,
    error_document,
    with_hint,
)
from zmqtriton_floor.errors import InternalError, ZmqTritonError
from zmqtriton_frontends.process import TaskTurn

_log = logging.getLogger(__name__)
_Item = TypeVar("_Item")

#: A chunk has no more events, and hardly more bytes: the model hears of its reader after each.
_MAX_EVENTS = 256
_MAX_BYTES = 64 << 10


def _event_of_error(error: ZmqTritonError) -> bytes:
    return as_event(error_document(error))


class Events(Generic[_Item]):
    """An async iterator of chunks, with the `close` that Falcon awaits in any case."""

    def __init__(
        self,
        first: bytes,
        items: AsyncGenerator[_Item, None],
        write: Callable[[_Item], Awaitable[bytes]],
        write_error: Callable[[ZmqTritonError], bytes] = _event_of_error,
        *,
        turn: TaskTurn,
        made: Callable[[int], None] | None = None,
    ) -> None:
        """Set up with the first chunk, the items that follow, and the way to write them.

        `made` is told how large each event became.
        """
        self._loop = asyncio.get_running_loop()
        self._items = items
        self._write = write
        self._write_error = write_error
        self._ready = [first] if first else []
        self._bytes = len(first)
        self._has_ended = False
        #: What the reader of chunks waits for, and what the reader of items.
        self._more: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._turn = turn
        self._made = made
        if made is not None:
            made(len(first))
        self._following: asyncio.Task[None] | None
        self._following = self._loop.create_task(turn.take(self._follow))

    def __aiter__(self) -> Events[_Item]:
        return self

    async def __anext__(self) -> bytes:
        while not self._ready:
            if self._has_ended:
                raise StopAsyncIteration
            self._more = self._loop.create_future()
            await self._more
        chunk = self._ready[0] if len(self._ready) == 1 else b"".join(self._ready)
        self._ready.clear()
        self._bytes = 0
        _settle(self._room)
        return chunk

    async def close(self) -> None:
        # a task that was cancelled has a traceback, which has this: all that is not sent would stay
        # until a garbage collection
        following, self._following = self._following, None
        self._ready.clear()
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        await self._items.aclose()

    async def _follow(self) -> None:
        try:
            async for item in self._items:
                event = await self._write(item)
                del item  # its memory may be the model's
                self._append(event)
                del event  # it is sent while the next one is waited for
                if self._turn.is_over:
                    await asyncio.sleep(0)
                while len(self._ready) >= _MAX_EVENTS or self._bytes >= _MAX_BYTES:
                    self._room = self._loop.create_future()
                    await self._room
        except ZmqTritonError as error:
            self._append(with_hint(self._write_error(error), error))
        except Exception:  # noqa: BLE001 - an edge: the client is told, whatever it is
            _log.exception("could not go on with a stream of events")
            self._append(self._write_error(InternalError("internal error")))
        finally:
            self._has_ended = True
            _settle(self._more)

    def _append(self, event: bytes) -> None:
        if self._made is not None:
            self._made(len(event))
        if event:
            self._ready.append(event)
            self._bytes += len(event)
            _settle(self._more)


def _settle(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
