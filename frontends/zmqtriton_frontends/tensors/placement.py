"""Places a request's large tensors where stubs map them: in this process's arena, or in regions.

What lies in the arena stays there, and what lies in a client's region that may be mapped is lent to
the stub. Used by payload.py, which has memory made if there is too little. Sends nothing, and waits
for nothing itself.
"""

from __future__ import annotations

from typing import Any

from zmqtriton_floor.arena import INLINE_BYTES, Allocation, Arena
from zmqtriton_floor.cache_keys import Keys
from zmqtriton_floor.leases import Leases
from zmqtriton_floor.wire import Reference, RequestBody, Tensor, make
from zmqtriton_frontends.inference.admission import CheckedRequest
from zmqtriton_frontends.inference.client_regions import Loan, RegionContents

_WORD_BYTES = 8
#: What is copied at once: more would keep others waiting.
COPY_BYTES = 4 << 20


class KeptBlocks:
    """Blocks of a request that was answered, until its answer, which refers to them, is read.

    It may end in any thread.
    """

    __slots__ = ("_leases", "blocks")

    def __init__(self, leases: Leases, blocks: list[int]) -> None:
        self._leases = leases
        self.blocks = blocks

    def end(self) -> None:
        """Keep them no longer."""
        blocks, self.blocks = self.blocks, []
        self._leases.end(blocks)

    def __del__(self) -> None:
        self.end()


class Placement:
    """A body for stubs, with references in place of large tensors."""

    __slots__ = ("_arena", "_inputs", "_keys", "_parts", "blocks", "body", "cache_key", "loans")

    def __init__(self, arena: Arena, keys: Keys | None) -> None:
        """Set up; `keys` make the key of its answer in the response cache."""
        self._arena = arena
        self._keys = keys
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

        Returns the data for which the arena lacks room, or which take long to copy, if there are
        any: then it is to be called again with a block of this placement's that holds a copy.
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
        """Take everything back: nobody reads it any more, or will."""
        if self.blocks:
            self._arena.leases.end(self.blocks)
        for region, _ in self.loans:
            region.give_back()

    def keep(self) -> KeptBlocks:
        """Take back all but the blocks, which the answer refers to."""
        blocks, self.blocks = self.blocks, []
        self.take_back()
        return KeptBlocks(self._arena.leases, blocks)

    def _lend(self, contents: RegionContents) -> Reference | None:
        if contents.region.is_on_gpu:
            self._keys = None  # nobody here can digest it
        elif self._keys is not None:
            return None  # what gets a key must not be a client's, which may change it
        reference = contents.lend(self._arena.owner, self.loans[-1] if self.loans else None)
        if reference is not None:
            self.loans.append((contents.region, reference))
        return reference

    def _locate(self, data: memoryview) -> Reference | None:
        """Return where it lies in the arena, if it is aligned as models expect of arrays."""
        reference = self._arena.locate(data)
        if reference is None or reference.offset % _WORD_BYTES:
            return None
        self._arena.leases.add([reference.block])
        self.blocks.append(reference.block)
        return reference

    def _put(self, data: Any) -> Allocation | None:
        """Return a block with a copy; None if that takes long, or if there is no room."""
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
