"""Large tensors of a frontend: requests' go into its arena, responses' are read in place.

The gateway brings and takes the messages, on the same loop. A tensor of a response is a view of
shared memory, and its block is released when the last such view is gone, without a call.

Tensors of a request in a client's region that may be mapped are lent to the stub. A placement sends
nothing, and waits for nothing itself; its caller gets more memory if there is too little.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from zmqtriton_floor.arena import (
    INLINE_BYTES,
    LARGE_BYTES,
    USERS_FROM,
    Allocation,
    Arena,
    block_of,
    held,
)
from zmqtriton_floor.cache_keys import Keys, keys_of
from zmqtriton_floor.errors import ProtocolError, Unavailable
from zmqtriton_floor.leases import Leases
from zmqtriton_floor.memory_kinds import make_arena, make_mappings
from zmqtriton_floor.settings.stub import Memory
from zmqtriton_floor.wire import (
    Block,
    HeldBlocks,
    Lease,
    LeasesReported,
    Reference,
    Release,
    RequestBody,
    ResponseBody,
    Tensor,
    make,
    references_in,
)
from zmqtriton_frontends.inference.admission import CheckedRequest
from zmqtriton_frontends.inference.client_regions import Loan, RegionContents
from zmqtriton_frontends.tensors.arena_body import ArenaBuffer
from zmqtriton_frontends.tensors.references import Releases, blocks_of
from zmqtriton_frontends.tensors.segments import Segments

#: The broker's messages about blocks of this process.
BLOCK_MESSAGES = (Lease, Release, LeasesReported)
#: Alignment of a tensor within its page, in bytes, for numpy and what lies after it; and the least
#: that models expect of arrays.
_ALIGNMENT = 64
_WORD_BYTES = 8
#: Bytes that are copied at once: more would keep others waiting.
COPY_BYTES = 4 << 20


@dataclass(slots=True, eq=False)
class KeptBlocks:
    """Blocks of an answered request, which the response refers to, until that was read.

    May be dropped in any thread.
    """

    _leases: Leases
    blocks: list[int]

    def end(self) -> None:
        """End the leases of the blocks, which may then be used again."""
        blocks, self.blocks = self.blocks, []
        self._leases.end(blocks)

    def __del__(self) -> None:
        self.end()


class StubPayload:
    """The body of a request for stubs, with references instead of large tensors."""

    __slots__ = (
        "_arena",
        "_inputs",
        "_keys",
        "_lends",
        "_parts",
        "blocks",
        "body",
        "cache_key",
        "loans",
    )

    def __init__(self, arena: Arena, keys: Keys | None, *, lends: bool = True) -> None:
        """Set up; `keys` make the key of the request in the response cache.

        Memory of clients is copied unless it `lends`.
        """
        self._arena = arena
        self._keys = keys
        self._lends = lends
        #: The tensors that are placed, and their parts of the key.
        self._inputs: list[Tensor] = []
        self._parts: list[bytes] = []
        self.body: RequestBody
        self.cache_key = b""
        #: The arena's blocks that it refers to.
        self.blocks: list[int] = []
        #: The clients' memory that it refers to.
        self.loans: list[Loan] = []

    def place(self, request: CheckedRequest, room: Allocation | None = None) -> Any:
        """Place the tensors that are not placed yet; return None.

        If the arena lacks room for some data, or their copy takes long, returns the data. Then copy
        the data into `room`, a block of this placement, and call this again.
        """
        request_id, parameters, outputs, inputs, places = request.body
        keys, placed = self._keys, self._inputs
        for tensor in inputs[len(placed) :]:
            name, datatype, shape, data = tensor
            kind = type(data)
            if kind is RegionContents or len(data) > INLINE_BYTES:
                reference: Reference | None = None
                if kind is RegionContents:
                    reference = self._lend(data)
                    keys = self._keys
                elif kind is memoryview:
                    reference = self._locate(data)
                if reference is None:
                    room = room or self._put(data)
                    if room is None:
                        return data
                    data, reference = room
                    room = None
                tensor = make(Tensor, (name, datatype, shape, reference))
            if keys is not None:
                tensor, part = keys.marked(tensor, data)
                self._parts.append(part)
            placed.append(tensor)
        if request.claim is not None:
            loans, places = request.claim.lend(self._arena.owner, self.loans)
            self.loans += loans
        self.body = make(RequestBody, (request_id, parameters, outputs, placed, places))
        if keys is not None:
            self.cache_key = keys.of_parts(outputs, self._parts)
        return None

    def take_back(self) -> None:
        """End the leases of the request's blocks and loans, which have no readers any more."""
        if self.blocks:
            self._arena.leases.end(self.blocks)
        for region, _ in self.loans:
            region.give_back()

    def keep(self) -> KeptBlocks:
        """End all loans, but keep the blocks that the response refers to."""
        blocks, self.blocks = self.blocks, []
        self.take_back()
        return KeptBlocks(self._arena.leases, blocks)

    def _lend(self, contents: RegionContents) -> Reference | None:
        if contents.region.is_on_gpu:
            self._keys = None  # a frontend cannot read the memory of a GPU
        elif self._keys is not None or not self._lends:
            return None  # what gets a key must not be a client's, which may change it
        reference = contents.lend(self._arena.owner, self.loans[-1] if self.loans else None)
        if reference is not None:
            self.loans.append((contents.region, reference))
        return reference

    def _locate(self, data: memoryview) -> Reference | None:
        """Return a reference to data in the arena that are aligned as models expect; else None."""
        reference = self._arena.locate(data)
        if reference is None or reference.offset % _WORD_BYTES:
            return None
        self._arena.leases.add([reference.block])
        self.blocks.append(reference.block)
        return reference

    def _put(self, data: Any) -> Allocation | None:
        """Return a block with a copy; None if the copy takes long, or if there is no room."""
        size = len(data)
        room = self._arena.allocate(size) if size <= COPY_BYTES else None
        if room is not None:
            self.blocks.append(room.reference.block)
            copy(data, room.view, 0, size)
        return room


def copy(data: Any, view: memoryview, start: int, end: int) -> None:
    """Copy a part of a tensor's data to the same part of a view."""
    if type(data) is RegionContents:
        data.read_into(view[start:end], start)
    else:
        view[start:end] = memoryview(data)[start:end]


class Payload:
    """The arena, the mappings, and the requests and responses that use them."""

    def __init__(
        self,
        serial: int,
        memory: Memory,
        tell: Callable[[Any], None],
        release: Callable[[Release], None],
    ) -> None:
        """Set up; `tell` sends messages to the supervisor, `release` to the broker."""
        self.arena = make_arena(serial, memory, is_gradual=True)
        self.keys = keys_of(memory.cache_secret)
        self.releases = Releases(release)
        self.mappings = make_mappings(memory, is_private=False, on_release=self.releases.add)
        self.segments = Segments(self.arena, self.mappings, tell)
        #: Placements of the requests without a final reply, by request id.
        self.placed: dict[int, StubPayload] = {}
        #: The blocks of responses whose segments are being requested.
        self._opening: list[list[Block]] = []
        #: The module that makes views of responses is imported.
        self._has_arrays = False

    def close(self) -> None:
        """Give up the memory of other processes; arrays over it stay valid."""
        self.mappings.close()
        self.segments.close()
        self.releases.end()

    # -------------------------------------------------------------- requests

    def place_now(self, request: CheckedRequest) -> StubPayload | None:
        """Place the request's large tensors in shared memory.

        Returns None if memory must be allocated first, or if copies take long.
        """
        placed = self._placement(request)
        try:
            if placed.place(request) is None:
                return placed
        except BaseException:
            placed.take_back()
            raise
        placed.take_back()
        return None

    async def place(self, request: CheckedRequest) -> StubPayload:
        """Place a request's large tensors; wait for memory. Raises Unavailable if it is short."""
        placed = self._placement(request)
        with ExitStack() as regions:
            for tensor in request.body.inputs:  # all of them, before anything is waited for
                if type(tensor.data) is RegionContents:
                    regions.enter_context(tensor.data)
            try:
                data = placed.place(request)
                while data is not None:
                    room = await self.segments.allocate(len(data))
                    placed.blocks.append(room.reference.block)
                    await self._fill(room, data)
                    data = placed.place(request, room)
            except BaseException:
                placed.take_back()
                raise
        return placed

    async def _fill(self, room: Allocation, data: Any) -> None:
        """Copy data in steps, between which the loop does other work."""
        size, block = len(data), room.reference.block
        for start in range(0, size, COPY_BYTES):
            if start:
                await asyncio.sleep(0)
            end = min(start + COPY_BYTES, size)
            self.arena.make(block, end)
            copy(data, room.view, start, end)

    def _placement(self, request: CheckedRequest) -> StubPayload:
        # an answer that its stub writes elsewhere is not one for others
        is_keyed = self.keys is not None and request.claim is None and request.model.is_hashed
        # a client has its memory back at a deadline, but its sequence goes on with what was read
        may_last = bool(request.options.deadline_ns) and request.model.has_sequences
        return StubPayload(self.arena, self.keys if is_keyed else None, lends=not may_last)

    def is_lent(self, data: Any) -> bool:
        """True for data of a request that its sender may change once it has the response."""
        reference = self.arena.locate(data) if type(data) is memoryview else None
        is_users = reference is not None and reference.segment >= USERS_FROM
        return is_users or type(data) is RegionContents

    def answered(self, own_id: int) -> None:
        """End the leases of a request's tensors after its final reply: nothing reads them now."""
        self.placed.pop(own_id).take_back()

    def keep(self, own_id: int) -> KeptBlocks:
        """Keep a request's blocks after its final reply, because the reply refers to them."""
        return self.placed.pop(own_id).keep()

    async def reserve(self, size: int, tensors_at: int) -> ArenaBuffer | None:
        """Reserve room in the arena for a request's body; None if memory is short.

        Its tensors begin at the given byte, so that they need not be copied once more.
        """
        try:
            allocation = await self.segments.allocate(size + _ALIGNMENT)
        except Unavailable:
            return None
        return self._gathered(allocation, size, tensors_at)

    def reserve_now(self, size: int, tensors_at: int) -> ArenaBuffer | None:
        """Reserve room for a body in memory that exists already; None without room."""
        allocation = self.arena.allocate(size + _ALIGNMENT)
        return None if allocation is None else self._gathered(allocation, size, tensors_at)

    def _gathered(self, allocation: Allocation, size: int, tensors_at: int) -> ArenaBuffer:
        start = -tensors_at % _ALIGNMENT
        view = allocation.view[start : start + size]
        made = size if allocation.reference.size <= LARGE_BYTES else 0
        return ArenaBuffer(view, self.arena, allocation.reference.block, start, made)

    def abandon(self, room: ArenaBuffer) -> None:
        """Give room back whose body was not completed."""
        self.segments.abandon(room.block)

    async def gather(
        self,
        pieces: list[Any],
        size: int,
        tensors_at: int,
        hold: Callable[[int], None] = lambda size: None,
    ) -> ArenaBuffer:
        """Return a request's body in one piece, and drop the pieces.

        A small body, or one without room in the arena, is in ordinary memory. `hold` gets the size
        of a copy before it is made, and raises if there is no room. When the body is in the arena,
        `hold` gets the size of the copy and the pieces as a negative number: they are no longer
        held.
        """
        has_large = size - tensors_at > INLINE_BYTES
        if has_large:
            hold(size)
        room = await self.reserve(size, tensors_at) if has_large else None
        if room is None:
            whole = ArenaBuffer(pieces[0] if len(pieces) == 1 else b"".join(pieces))
            hold(-size if has_large else 0)
            return whole
        try:
            position = 0
            for number, piece in enumerate(pieces):
                pieces[number] = b""  # so that a large body lies in this process once
                for start in range(0, len(piece), COPY_BYTES):
                    if position:
                        await asyncio.sleep(0)
                    part = memoryview(piece)[start : start + COPY_BYTES]
                    end = position + len(part)
                    room.make(end)
                    room.data[position:end] = part
                    position = end
        except BaseException:
            self.abandon(room)
            raise
        pieces.clear()
        hold(-2 * size)
        return room

    # ------------------------------------------------------------- responses

    def open_now(
        self, response: ResponseBody, kept: KeptBlocks | None = None
    ) -> ResponseBody | None:
        """Return the response with its large tensors as views, released with the last of them.

        If that fails, drops `kept`. Returns None, and does nothing, if memory has to be requested
        first.
        """
        references = references_in(response.outputs)
        return None if self.mappings.missing(references) else self._open(response, references, kept)

    async def open(self, response: ResponseBody, kept: KeptBlocks | None = None) -> ResponseBody:
        """Return the response, even if that takes long. Raises Unavailable if memory is gone."""
        references = references_in(response.outputs)
        if self.mappings.missing(references):
            await self._map_all(references, kept)
        return self._open(response, references, kept)

    def _open(
        self, response: ResponseBody, references: list[Reference], kept: KeptBlocks | None
    ) -> ResponseBody:
        try:
            if kept is not None:
                for reference in references:
                    if reference.owner != self.arena.owner or reference.block not in kept.blocks:
                        raise ProtocolError("a tensor in memory that is not its request's")
            arrays = iter(self.mappings.open(references, is_leased=kept is None, kept=kept))
        except BaseException:
            self._let_go(references, kept)
            raise
        outputs = []
        for name, datatype, shape, data in response.outputs:
            if type(data) is Reference:
                data = memoryview(next(arrays))
            outputs.append(make(Tensor, (name, datatype, shape, data)))
        return make(ResponseBody, (response.parameters, outputs))

    def discard(self, data: bytes) -> None:
        """Release the memory that the response in this body refers to: nothing will read it."""
        blocks = blocks_of(data)
        if blocks:
            self.releases.add(blocks)

    def _let_go(self, references: list[Reference], kept: KeptBlocks | None) -> None:
        """Release the blocks of a response that cannot be opened."""
        if kept is None:
            self.releases.add([block_of(reference) for reference in references])
        else:
            kept.end()  # at once: the error, which may stay for long, knows who has it

    async def _map_all(self, references: list[Reference], kept: KeptBlocks | None) -> None:
        blocks = [] if kept else [block_of(reference) for reference in references]
        self._opening.append(blocks)
        try:
            if not self._has_arrays:
                # beside the loop, which that would keep for a third of a second
                await asyncio.to_thread(importlib.import_module, "numpy")
                self._has_arrays = True
            for owner, segment in self.mappings.missing(references):
                await self.segments.map(owner, segment)
        except BaseException:
            self._let_go(references, kept)
            raise
        finally:
            self._opening.remove(blocks)

    # ------------------------------------------------------------- the broker

    def change_broker(self, unread: Iterable[bytes]) -> list[HeldBlocks]:
        """Return the blocks of other processes that this process holds, for the next broker.

        They include the blocks of unread responses. Blocks of this process that no other process
        reports to the next broker in time become free.
        """
        # a step of an ensemble may read them long after the request was refused
        self.arena.leases.lend(block for one in self.placed.values() for block in one.blocks)
        self.arena.doubt_leases()
        blocks = [*self.mappings.leased(), *self.releases.blocks]
        for more in [*self._opening, *map(blocks_of, unread)]:
            blocks += more
        return held(blocks)

    def hear_of_blocks(self, message: Lease | Release | LeasesReported) -> None:
        """Apply a message about the blocks of this process, of a type in BLOCK_MESSAGES."""
        leases = self.arena.leases
        if isinstance(message, Lease):
            leases.take_leases([block.block for block in message.blocks])
        elif isinstance(message, Release):
            leases.take_back([block.block for block in message.blocks])
        else:
            leases.end_doubted()
