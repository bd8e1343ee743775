"""Shared memory from the supervisor: segments for a frontend's arena, and other processes'."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any

from zmqtriton_floor import wire
from zmqtriton_floor.arena import IDLE_S, Allocation, Arena
from zmqtriton_floor.errors import MEMORY_GONE, ProtocolError, Unavailable
from zmqtriton_floor.mappings import Mappings

_log = logging.getLogger(__name__)

#: The messages that receive() takes.
MESSAGES = (wire.SegmentCreated, wire.SegmentOpened)

#: Seconds to wait for the supervisor at most; it takes milliseconds where the machine has time for
#: it.
_ANSWER_TIMEOUT_S = 5.0
_NO_ANSWER = "The supervisor did not answer in time."

#: A message and its descriptor, or why there is no memory for it.
_Answer = tuple[Any, int | None]


class Segments:
    """Lets the arena grow and shrink, and maps the segments of other processes."""

    def __init__(self, arena: Arena, mappings: Mappings, send: Callable[[Any], None]) -> None:
        """Set up; `send` sends a message to the supervisor."""
        self._arena = arena
        self._mappings = mappings
        self._send = send
        self._loop = asyncio.get_running_loop()
        #: Segments that the supervisor did not hand over as it should.
        self.malformed = 0
        self._answers: dict[tuple[int, ...], asyncio.Future[_Answer]] = {}
        self._growing = asyncio.Lock()
        self._trim_timer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        if self._trim_timer is not None:
            self._trim_timer.cancel()

    # ----------------------------------------------------------------- arena

    async def allocate(self, size: int, *, is_users: bool = False) -> Allocation:
        """Allocate a block, which a user's code may write to at any time if it `is_users`.

        Raises Unavailable where memory is short.
        """
        allocation = self._arena.allocate(size, is_users=is_users)
        if allocation is None:
            # One after the other, since a new segment is often enough for all that wait. Threads
            # of a guest may take its room before this does.
            async with self._growing:
                while allocation is None:
                    allocation = self._arena.allocate(size, is_users=is_users)
                    allocation = allocation or await self._grow(size, is_users)
        if self._trim_timer is None:
            self._trim_timer = self._loop.call_later(IDLE_S, self._trim)
        return allocation

    async def _grow(self, size: int, is_users: bool) -> Allocation | None:
        """Add a segment and return None, or return a block that was freed. Raises Unavailable."""
        for is_last_try in (False, True):
            request = self._arena.segment_request(size, is_users=is_users)
            created, descriptor = await self._await_created(request)
            try:
                if descriptor is None:
                    raise self._arena.refuse(
                        request, _NO_ANSWER if created is None else created.text
                    )
                self._arena.add(request, descriptor)
                return None
            except Unavailable:
                # If it was made in spite of that, it would count, and be there, for ever.
                idle = self._arena.trim(0)
                self._free([wire.FreeSegment(request.segment), *idle])
                allocation = self._arena.allocate(size, is_users=is_users)
                if allocation is not None:  # a block was freed, or is not kept apart any more
                    return allocation
                if is_last_try or not idle:
                    raise
        return None

    async def _await_created(self, request: wire.CreateSegment) -> _Answer:
        answer = self._answers[(request.segment,)] = self._loop.create_future()
        self._send(request)
        try:
            return await asyncio.wait_for(answer, _ANSWER_TIMEOUT_S)
        except asyncio.TimeoutError:
            return None, None
        except asyncio.CancelledError:
            self._arena.refuse(request, "")
            if answer.done() and not answer.cancelled():
                self._give_back(*answer.result())
            raise

    def _give_back(self, created: wire.SegmentCreated, descriptor: int | None) -> None:
        if descriptor is not None:
            os.close(descriptor)
            self._send(wire.FreeSegment(created.segment))

    def _trim(self) -> None:
        self._free(self._arena.trim())
        self._trim_timer = self._loop.call_later(IDLE_S, self._trim) if self._arena.bytes else None

    def abandon(self, block: int) -> None:
        """Free a block that will not be used, and its segment if that was made for it."""
        self._free(self._arena.abandon(block))

    def _free(self, segments: list[wire.FreeSegment]) -> None:
        for segment in segments:
            self._send(segment)

    # -------------------------------------------------------------- mappings

    async def map(self, owner: int, segment: int) -> None:
        """Map a segment. Raises Unavailable if it is gone, or does not fit here."""
        key = (owner, segment)
        answer = self._answers.get(key)
        if answer is None:
            self._answers[key] = answer = self._loop.create_future()
            self._send(wire.OpenSegment(owner, segment))
        try:
            opened, _ = await asyncio.wait_for(asyncio.shield(answer), _ANSWER_TIMEOUT_S)
        except asyncio.TimeoutError:
            self._answers.pop(key, None)
            raise Unavailable(f"the tensors of the response cannot be read: {_NO_ANSWER}") from None
        if isinstance(opened, str):
            # Not an error in the future: raised here, it would know that, and so itself. With all
            # that its frames have it would stay until a collection.
            raise Unavailable(opened)
        if not opened.size:
            raise Unavailable(MEMORY_GONE)

    def receive(self, message: Any, descriptors: list[int]) -> None:
        """Take a message about a segment, one of MESSAGES, and its descriptor."""
        descriptor = descriptors.pop() if descriptors else None
        if type(message) is wire.SegmentCreated:
            answer = self._answers.pop((message.segment,), None)
            if answer is None or answer.done():
                self._give_back(message, descriptor)
            else:
                answer.set_result((message, descriptor))
            return
        owner, segment = message[:2]
        shortage = ""
        if descriptor is None:
            self._mappings.remove(owner, segment)
        else:
            try:
                self._mappings.add(owner, segment, descriptor)
            except ProtocolError as error:
                self.malformed += 1
                _log.warning("dropped a segment: %s", error.text)
                message = message._replace(size=0)
            except Unavailable as error:
                shortage = error.text
        answer = self._answers.pop((owner, segment), None)
        if answer is None or answer.done():
            return
        answer.set_result((shortage or message, None))
