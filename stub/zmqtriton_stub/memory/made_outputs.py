"""Outputs that a model makes where their receivers read them: in the arena from the beginning.

A block has a lease of its own as long as the model has an array over it, and another one for each
response that refers to it. Talks to nobody.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable

import numpy as np

from zmqtriton_floor.arena import Allocation
from zmqtriton_floor.leases import Leases
from zmqtriton_floor.wire import Reference, make


class MadeOutputs:
    """The blocks over which the model has arrays. Thread-safe."""

    def __init__(self, allocate: Callable[[int], Allocation], leases: Callable[[], Leases]) -> None:
        """Set up; `allocate` raises Unavailable if memory is short."""
        self._allocate = allocate
        self._leases = leases
        #: By the addresses where they begin: where they end, and the reference to all of a block.
        self.blocks: dict[int, tuple[int, Reference]] = {}

    def make(self, size: int) -> Any:
        """Return a new block as an array of bytes; it ends with the last array over it.

        Raises Unavailable if memory is short.
        """
        allocation = self._allocate(size)
        array: Any = np.frombuffer(allocation.view, np.uint8)
        reference = allocation.reference
        start = _address(array)
        self.blocks[start] = start + reference.size, reference
        end = weakref.finalize(array, self._end, start, reference.block)
        end.atexit = False
        return array

    def find(self, data: memoryview) -> Reference | None:
        """Return the reference to these bytes; None if they are not all in one of the blocks."""
        start = _address(np.frombuffer(data, np.uint8))
        for low, (high, whole) in [*self.blocks.items()]:
            if low <= start and start + len(data) <= high:
                owner, segment, block, offset, *_ = whole
                row = (owner, segment, block, offset + start - low, len(data), b"")
                return make(Reference, row)
        return None

    def _end(self, start: int, block: int) -> None:
        # before the block can be another one
        self.blocks.pop(start, None)
        self._leases().end([block])


def _address(array: Any) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
