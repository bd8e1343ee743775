"""Places a request's large tensors in this process's arena, unless they lie there already.

Used by payload.py, which has the memory made if there is too little. Sends nothing, and waits for
nothing itself.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from typing import Any

from zmqtriton_floor import wire
from zmqtriton_floor.arena import INLINE_BYTES, Allocation, Arena
from zmqtriton_floor.cache_keys import Keys
from zmqtriton_floor.wire import Reference, RequestBody
from zmqtriton_frontends.inference.client_regions import RegionContents
from zmqtriton_frontends.tensors.trusted_regions import TrustedRegions

_WORD_BYTES = 8


class Placement:
    """A body for stubs, with references in place of large tensors."""

    def __init__(self, arena: Arena, lending: TrustedRegions | None, keys: Keys | None) -> None:
        """Set up; `keys` make the key of its answer in the response cache."""
        self._arena = arena
        self._lending = lending
        self._keys = keys
        self.body: RequestBody
        self.cache_key = b""
        #: The arena's blocks that it refers to.
        self.blocks: list[int] = []
        #: The clients' memory that it refers to.
        self.lent = ExitStack()

    def place(self, body: RequestBody) -> Generator[int, Allocation, None]:
        """Ask for so many bytes when the arena has no room.

        Takes everything back if this raises, or is closed before its end.
        """
        with ExitStack() as regions:
            for tensor in body.inputs:  # all of them, before anything is waited for
                if type(tensor.data) is RegionContents:
                    regions.enter_context(tensor.data)
            try:
                yield from self._place(body)
            except BaseException:
                self.take_back()
                raise

    def take_back(self) -> None:
        """Take everything back: nobody is to read it."""
        self._arena.leases.end(self.blocks)
        self.lent.close()

    def _place(self, body: RequestBody) -> Generator[int, Allocation, None]:
        keys = self._keys
        inputs: list[wire.Tensor] = []
        parts: list[bytes] = []
        for tensor in body.inputs:
            name, datatype, shape, data = tensor
            if len(data) > INLINE_BYTES:
                reference = None
                # what gets a key must not be a client's, which may change it
                if self._lending is not None and keys is None:
                    reference = self._lending.lend(data, self.lent)
                reference = reference or self._locate(data)
                if reference is None:
                    room = self._arena.allocate(len(data)) or (yield len(data))
                    reference, data = self._put(data, room)
                tensor = wire.Tensor(name, datatype, shape, reference)
            if keys is not None:
                tensor, part = keys.marked(tensor, data)
                parts.append(part)
            inputs.append(tensor)
        self.body = RequestBody(body.request_id, body.parameters, body.outputs, inputs)
        if keys is not None:
            self.cache_key = keys.of_parts(body.outputs, parts)

    def _locate(self, data: Any) -> Reference | None:
        """Return where it lies in the arena, if it is aligned as models expect of arrays."""
        reference = self._arena.locate(data) if type(data) is memoryview else None
        if reference is None or reference.offset % _WORD_BYTES:
            return None
        self._arena.leases.add([reference.block])
        self.blocks.append(reference.block)
        return reference

    def _put(self, data: Any, room: Allocation) -> tuple[Reference, memoryview]:
        self.blocks.append(room.reference.block)
        if type(data) is RegionContents:
            data.read_into(room.view)
        else:
            room.view[:] = data
        return room.reference, room.view
