"""Passes on tensors in the memory of other processes unchanged, without a copy.

Used for tensors that a model gives to another model or to its requester. A tensor can be passed on
only if its owner's bytes are unchanged, and while its memory is certainly kept: by a lease of this
process, or by the request that brought it. Sends no messages.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any, Callable, List, Sequence, Tuple

from zmqtriton_floor.errors import ProtocolError
from zmqtriton_floor.mappings import Mappings
from zmqtriton_floor.wire import HAS_REFERENCES, Block, Reference, Tensor

#: Smaller tensors in an outcome are copied: that costs less than telling their owners.
PASSED_BYTES = 256 << 10

#: The reference, and the block that has to be named along with it.
ForwardedTensor = Tuple[Reference, List[Block]]


def check_placed(rows: List[Tensor], flags: int) -> None:
    """Raise ProtocolError if tensors refer to memory that the broker has not checked."""
    if not flags & HAS_REFERENCES and any(type(row.data) is Reference for row in rows):
        raise ProtocolError("a tensor in memory that it may not be in")


class TensorForwarding:
    """The tensors that this process passes on. Thread-safe."""

    def __init__(self, mappings: Mappings, lease_own: Callable[[Block], bool]) -> None:
        """Set up; `lease_own` adds a lease to a block of this process's own arena.

        It returns False for other blocks; an own block has come back to its owner.
        """
        self._mappings = mappings
        self._lease_own = lease_own
        self.lock = threading.RLock()
        #: Inputs of present requests in calls without a final reply, with their number.
        self._borrowed: Counter[Block] = Counter()
        #: Likewise, of requests that were answered earlier than such a call.
        self._leased: Counter[Block] = Counter()

    def to_model(self, data: Any, held: list[Any], blocks: list[Block]) -> ForwardedTensor | None:
        """Pass a tensor to another model.

        The caller must keep `held` until the final reply of the call, and give back `blocks` then.
        """
        with self.lock:
            place = self._mappings.locate(data)
            if place is None:
                return None
            reference, is_leased, block = place
            if self._lease_own(block):
                return reference, [block]
            if is_leased:
                held.append(data)
            else:
                self._borrowed[block] += 1
                blocks.append(block)
            return reference, []

    def to_asker(
        self, data: Any, inputs: Sequence[Block], held: list[Any]
    ) -> ForwardedTensor | None:
        """Pass a tensor to the requester, in the outcome of a request with these inputs.

        The broker leases the block to the requester; keep `held` until the outcome is sent.
        """
        if len(data) < PASSED_BYTES:
            return None
        place = self._mappings.locate(data)
        if place is None:
            return None
        reference, is_leased, block = place
        if not is_leased and block not in inputs:
            return None  # another request's, which may be answered before this outcome leaves
        if not self._lease_own(block) and is_leased:
            held.append(data)
        return reference, [block]

    def leave(self, inputs: Sequence[Block]) -> list[Block]:
        """Return the inputs of a request that calls still refer to, before it is answered.

        Each is returned once per reference, because as many leases must be added first.
        """
        with self.lock:
            self._mappings.detach(inputs)
            leased = []
            for block in dict.fromkeys(inputs):
                count = self._borrowed.pop(block, 0)
                if count:
                    self._leased[block] += count
                    leased += [block] * count
        return leased

    def leased(self) -> list[Block]:
        """Return the blocks leased for calls that lack their final reply."""
        with self.lock:
            return list(self._leased.elements())

    def give_back(self, blocks: list[Block]) -> list[Block]:
        """End the use of blocks by a call with a final reply; return the leases to release."""
        released = []
        with self.lock:
            for block in blocks:
                counts = self._leased if self._leased[block] > 0 else self._borrowed
                counts[block] -= 1
                if counts is self._leased:
                    released.append(block)
                if counts[block] <= 0:
                    del counts[block]
        return released
