"""Large tensors of a frontend: requests' go into its arena, responses' are read where they lie.

Used by the gateway, which brings and takes the messages; lives on the gateway's loop. A tensor of a
response is a view of shared memory, and its block is released when the last such view is gone, so
nobody has to remember that.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Any

from zmqtriton_floor import wire
from zmqtriton_floor.arena import IDLE_S, INLINE_BYTES, Allocation, Arena, block_of, held
from zmqtriton_floor.cache_keys import keys_of
from zmqtriton_floor.errors import ProtocolError, Unavailable
from zmqtriton_floor.mappings import Mappings
from zmqtriton_floor.wire import Block, Reference, ResponseBody
from zmqtriton_frontends.inference.admission import CheckedRequest
from zmqtriton_frontends.tensors.arena_body import ArenaBuffer
from zmqtriton_frontends.tensors.placement import Placement
from zmqtriton_frontends.tensors.references import blocks_of, is_large, references_of
from zmqtriton_frontends.tensors.trusted_regions import TrustedRegions

_log = logging.getLogger(__name__)

#: What hear() is for.
MESSAGES = (wire.SegmentCreated, wire.SegmentOpened)

#: So long the supervisor may take to answer: milliseconds, where the machine has time for it.
_PATIENCE_S = 5.0
#: A release waits so long for a message to travel with, unless there are so many.
_RELEASE_AFTER_S = 0.003
_MAX_WAITING_RELEASES = 8
#: Where a tensor begins within a page, for numpy and what lies behind it.
_ALIGNMENT = 64

_LATE = "The supervisor did not answer in time."
_Heard = tuple[Any, int | None]  # a message and its descriptor


class Payload:
    """`tell` goes to the supervisor, `release` to the broker."""

    def __init__(
        self,
        serial: int,
        settings: dict[str, Any],
        tell: Callable[[Any], None],
        release: Callable[[wire.Release], None],
    ) -> None:
        self.arena = Arena.configured(serial, settings)
        self.keys = keys_of(settings)
        self.mappings = Mappings(is_private=False, on_release=self._released)
        self._tell = tell
        self._release = release
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        #: Segments that the supervisor did not give as it should.
        self.malformed = 0
        #: By the id of a request without a final reply: what it refers to.
        self._blocks: dict[int, list[int]] = {}
        #: What responses refer to whose segments are being asked for.
        self._opening: list[list[Block]] = []
        self._lending = TrustedRegions(serial, settings)
        self._asked: dict[tuple[int, ...], asyncio.Future[_Heard]] = {}
        self._growing = asyncio.Lock()
        self._trimming: asyncio.TimerHandle | None = None
        #: Arrays may end in a thread of gRPC's, where the garbage collector happens to run.
        self._releases: deque[Block] = deque()
        self._releasing: asyncio.Handle | None = None

    def close(self) -> None:
        for handle in (self._trimming, self._releasing):
            if handle is not None:
                handle.cancel()

    # -------------------------------------------------------------- requests

    def send_now(self, request: CheckedRequest, ask: Callable[[CheckedRequest], int]) -> int | None:
        """Has `ask` send it with references for its large tensors; returns its id, which answered()
        is to be called with. None where memory has to be made first: then nothing was done."""
        if not is_large(request.body):
            return ask(request)
        placed = self._placement(request)
        placing = placed.place(request.body)
        if next(placing, None) is not None:
            placing.close()
            return None
        return self._send(request, placed, ask)

    async def send(self, request: CheckedRequest, ask: Callable[[CheckedRequest], int]) -> int:
        """The same, when there is memory. Unavailable where that is short."""
        if not is_large(request.body):
            return ask(request)
        placed = self._placement(request)
        with closing(placed.place(request.body)) as placing:
            size = next(placing, None)
            while size is not None:
                room = await self._allocate(size)
                try:
                    size = placing.send(room)
                except StopIteration:
                    break
        return self._send(request, placed, ask)

    def _placement(self, request: CheckedRequest) -> Placement:
        keys = self.keys if self.keys and request.model.is_hashed else None
        return Placement(self.arena, self._lending, keys)

    def _send(
        self, request: CheckedRequest, placed: Placement, ask: Callable[[CheckedRequest], int]
    ) -> int:
        try:
            own_id = ask(request._replace(body=placed.body, cache_key=placed.cache_key))
        except BaseException:
            placed.take_back()
            raise
        self._blocks[own_id] = placed.blocks
        self._lending.asked(own_id, placed.lent)
        return own_id

    def answered(self, own_id: int) -> None:
        """The request has its final reply, so nobody reads its tensors any more."""
        if self._blocks:
            self.arena.leases.end(self._blocks.pop(own_id, ()))
        self._lending.answered(own_id)

    async def reserve(self, size: int, tensors_at: int) -> ArenaBuffer | None:
        """Room in the arena for a request's body, so that its tensors, which begin at that byte of
        it, need not be copied once more. None where memory is short."""
        try:
            allocation = await self._allocate(size + _ALIGNMENT)
        except Unavailable:
            return None
        return self._gathered(allocation, size, tensors_at)

    def reserve_now(self, size: int, tensors_at: int) -> ArenaBuffer | None:
        """The same, of memory that is there already."""
        allocation = self.arena.allocate(size + _ALIGNMENT)
        return None if allocation is None else self._gathered(allocation, size, tensors_at)

    def _gathered(self, allocation: Allocation, size: int, tensors_at: int) -> ArenaBuffer:
        start = -tensors_at % _ALIGNMENT
        view = allocation.view[start : start + size]
        return ArenaBuffer(view, self.arena, allocation.reference.block)

    async def gather(self, pieces: Sequence[bytes], size: int, tensors_at: int) -> ArenaBuffer:
        """A request's body in one piece; what is small or finds no room lies elsewhere."""
        has_large = size - tensors_at > INLINE_BYTES
        room = await self.reserve(size, tensors_at) if has_large else None
        if room is None:
            return ArenaBuffer(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        position = 0
        for piece in pieces:
            room.data[position : position + len(piece)] = piece
            position += len(piece)
        return room

    # ------------------------------------------------------------- responses

    def open_now(self, response: ResponseBody) -> ResponseBody | None:
        """The response with its large tensors as views, whose memory is released with the last of
        them. None where their memory has to be asked for first: then nothing was done."""
        references = references_of(response)
        return None if self.mappings.missing(references) else self._open(response, references)

    async def open(self, response: ResponseBody) -> ResponseBody:
        """The same, however long it takes. Unavailable where the memory is gone."""
        references = references_of(response)
        missing = self.mappings.missing(references)
        if missing:
            await self._map_all(missing, [block_of(reference) for reference in references])
        return self._open(response, references)

    def _open(self, response: ResponseBody, references: list[Reference]) -> ResponseBody:
        try:
            arrays = iter(self.mappings.open(references, is_leased=True))
        except BaseException:
            self._released([block_of(reference) for reference in references])
            raise
        outputs = [
            tensor._replace(data=memoryview(next(arrays)))
            if type(tensor.data) is Reference
            else tensor
            for tensor in response.outputs
        ]
        return response._replace(outputs=outputs)

    def discard(self, data: bytes) -> None:
        """Nobody wants the response that is in this body."""
        blocks = blocks_of(data)
        if blocks:
            self._released(blocks)

    def discard_unread(self, reply: asyncio.Future[bytes]) -> None:
        """Nobody will await it."""
        if reply.done() and not reply.cancelled() and reply.exception() is None:
            self.discard(reply.result())

    async def _map_all(self, missing: list[tuple[int, int]], blocks: list[Block]) -> None:
        self._opening.append(blocks)
        try:
            for owner, segment in missing:
                await self._map(owner, segment)
        except BaseException:
            self._released(blocks)
            raise
        finally:
            self._opening.remove(blocks)

    async def _map(self, owner: int, segment: int) -> None:
        given = await self._ask(wire.OpenSegment(owner, segment))
        if given is None:
            raise Unavailable(f"the tensors of the response cannot be read: {_LATE}")
        if not given.size:
            raise Unavailable("the model instance that answered is gone, and its response with it")

    def _released(self, blocks: list[Block]) -> None:
        """Called by destructors too, in whichever thread."""
        self._releases.extend(blocks)
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self._send_releases)
        elif len(self._releases) > _MAX_WAITING_RELEASES:
            self._send_releases_in(0)
        elif self._releasing is None:
            self._send_releases_in(_RELEASE_AFTER_S)

    def _send_releases_in(self, seconds: float) -> None:
        if self._releasing is not None:
            self._releasing.cancel()
        self._releasing = self._loop.call_later(seconds, self._send_releases)

    def _send_releases(self) -> None:
        for release in self.take_releases():
            self._release(release)

    def take_releases(self) -> list[wire.Release]:
        """What is to be sent with the next message."""
        if self._releasing is not None:
            self._releasing.cancel()
            self._releasing = None
        found = []
        while self._releases:
            count = min(len(self._releases), wire.MAX_ROWS)
            found.append(wire.Release([self._releases.popleft() for _ in range(count)]))
        return found

    # ------------------------------------------------------------- the broker

    def change_broker(self, unread: Iterable[bytes]) -> list[wire.HeldBlocks]:
        """What to tell the next one of others' blocks, those in unread responses among them. What
        it is not told of ours within reason will be free."""
        # A step of an ensemble may be reading them when the request is long refused.
        self.arena.leases.lend(block for blocks in self._blocks.values() for block in blocks)
        self.arena.doubt_leases()
        blocks = [*self.mappings.leased(), *self._releases]
        for more in [*self._opening, *map(blocks_of, unread)]:
            blocks += more
        return held(blocks)

    def hear_of_blocks(self, message: Any) -> bool:
        """The broker tells who holds what of ours; False for a message about anything else."""
        kind = type(message)
        if kind is wire.Lease:
            self.arena.leases.lend(block.block for block in message.blocks)
        elif kind is wire.Release:
            self.arena.leases.take_back(block.block for block in message.blocks)
        elif kind is wire.LeasesReported:
            self.arena.leases.end_doubted()
        else:
            return False
        return True

    # -------------------------------------------------------------- segments

    async def _allocate(self, size: int) -> Allocation:
        allocation = self.arena.allocate(size)
        if allocation is None:
            # One after the other, since a new segment is often enough for all that wait.
            async with self._growing:
                allocation = self.arena.allocate(size) or await self._grow(size)
        if self._trimming is None:
            self._trimming = self._loop.call_later(IDLE_S, self._trim)
        return allocation

    async def _grow(self, size: int) -> Allocation:
        for is_last_try in (False, True):
            wanted = self.arena.wanted(size)
            made, descriptor = await self._await_segment(wanted)
            try:
                if descriptor is None:
                    raise self.arena.refuse(wanted, _LATE if made is None else made.text)
                self.arena.add(wanted, descriptor)
                break
            except Unavailable:
                # If it was made in spite of that, it would count, and be there, for ever.
                idle = self.arena.trim(0)
                self._drop([wire.FreeSegment(wanted.segment), *idle])
                if is_last_try or not idle:
                    raise
        allocation = self.arena.allocate(size)
        assert allocation is not None, "a segment made for a block has room for it"
        return allocation

    async def _await_segment(self, wanted: wire.CreateSegment) -> _Heard:
        answer = self._asked[(wanted.segment,)] = self._loop.create_future()
        self._tell(wanted)
        try:
            return await asyncio.wait_for(answer, _PATIENCE_S)
        except asyncio.TimeoutError:
            return None, None
        except asyncio.CancelledError:
            self.arena.refuse(wanted, "")
            if answer.done() and not answer.cancelled():
                self._return(*answer.result())
            raise

    async def _ask(self, question: wire.OpenSegment) -> wire.SegmentOpened | None:
        """What the supervisor answers, to all who ask the same; None if it takes too long."""
        key = (question.owner, question.segment)
        answer = self._asked.get(key)
        if answer is None:
            self._asked[key] = answer = self._loop.create_future()
            self._tell(question)
        try:
            given, _ = await asyncio.wait_for(asyncio.shield(answer), _PATIENCE_S)
        except asyncio.TimeoutError:
            self._asked.pop(key, None)
            return None
        result: wire.SegmentOpened = given
        return result

    def hear(self, message: Any, descriptors: list[int]) -> None:
        """One of MESSAGES; takes its descriptor over."""
        descriptor = descriptors.pop() if descriptors else None
        if type(message) is wire.SegmentCreated:
            answer = self._asked.pop((message.segment,), None)
            if answer is None or answer.done():
                self._return(message, descriptor)
            else:
                answer.set_result((message, descriptor))
            return
        owner, segment = message[:2]
        shortage: Unavailable | None = None
        if descriptor is None:
            self.mappings.remove(owner, segment)
        else:
            try:
                self.mappings.add(owner, segment, descriptor)
            except ProtocolError as error:
                self.malformed += 1
                _log.warning("dropped a segment: %s", error.text)
                message = message._replace(size=0)
            except Unavailable as error:
                shortage = error
        answer = self._asked.pop((owner, segment), None)
        if answer is None or answer.done():
            return
        if shortage is not None:
            answer.set_exception(shortage)
        else:
            answer.set_result((message, None))

    def _return(self, made: wire.SegmentCreated, descriptor: int | None) -> None:
        if descriptor is not None:
            os.close(descriptor)
            self._tell(wire.FreeSegment(made.segment))

    def _trim(self) -> None:
        self._drop(self.arena.trim())
        self._trimming = self._loop.call_later(IDLE_S, self._trim) if self.arena.bytes else None

    def _drop(self, segments: list[wire.FreeSegment]) -> None:
        for segment in segments:
            self._tell(segment)
