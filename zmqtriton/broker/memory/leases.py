"""Which process holds which blocks of whose memory, so that nothing stays leased to the dead.

The owner's table is the authority; this is the account of the leases that went through the broker.
Knows no sockets: what is to be told to owners is returned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from zmqtriton_floor.wire import Block

#: Who holds what the broker itself has in hand, between two steps of an ensemble.
BROKER = 0


class Leases:
    """Counts by holder's serial."""

    def __init__(self) -> None:
        self._held: dict[int, Counter[Block]] = {}
        #: The same of all holders together.
        self._all: Counter[Block] = Counter()
        #: Of blocks that somebody holds: where what was told of it begins and ends.
        self._extents: dict[Block, tuple[int, int]] = {}

    def lease(self, holder: int, blocks: Iterable[Block]) -> None:
        """These are on their way to the holder, or with it."""
        held = self._held.get(holder)
        for block in blocks:
            if held is None:
                held = self._held[holder] = Counter()
            held[block] += 1
            self._all[block] += 1

    def widen_extent(self, block: Block, start: int, end: int) -> None:
        """Somebody was told of these bytes of it, and may tell others."""
        if block in self._all:
            low, high = self._extents.get(block, (start, end))
            self._extents[block] = min(low, start), max(high, end)

    def covers(self, holder: int, block: Block, start: int, end: int) -> bool:
        """Whether the holder can know of these bytes by a lease; of a block that an earlier broker
        has leased it is not known which it was told of."""
        low, high = self._extents.get(block, (start, end))
        return self.has(holder, block) and low <= start and end <= high

    def _drop(self, block: Block, count: int = 1) -> None:
        self._all[block] -= count
        if self._all[block] <= 0:
            del self._all[block]
            self._extents.pop(block, None)

    def has(self, holder: int, block: Block) -> bool:
        held = self._held.get(holder)
        return held is not None and held.get(block, 0) > 0

    def release(self, holder: int, blocks: Iterable[Block]) -> list[Block]:
        """Those that the holder really had; the others were freed already, or never its own."""
        held = self._held.get(holder)
        if held is None:
            return []
        released = []
        for block in blocks:
            if held[block] > 0:
                released.append(block)
                held[block] -= 1
                self._drop(block)
            if held[block] <= 0:
                del held[block]
        if not held:
            del self._held[holder]
        return released

    def hand_over(self, holder: int, to: int, blocks: Iterable[Block]) -> None:
        """The same lease in other hands: nothing is to be told to the owner."""
        blocks = [*blocks]
        extents = {block: self._extents[block] for block in blocks if block in self._extents}
        self.lease(to, self.release(holder, blocks))
        for block, extent in extents.items():
            self.widen_extent(block, *extent)

    def forget_holder(self, dead: int) -> list[Block]:
        """All that a dead process held; what it owned is gone with it, whoever held it."""
        left = list(self._held.pop(dead, Counter()).elements())
        for block in left:
            self._drop(block)
        for holder, held in list(self._held.items()):
            for block in [block for block in held if block.owner == dead]:
                self._drop(block, held.pop(block))
            if not held:
                del self._held[holder]
        return [block for block in left if block.owner != dead]

    @property
    def count(self) -> int:
        """Leases in all."""
        return sum(held.total() for held in self._held.values())
