"""The account of leases: which process holds which blocks.

It serves to keep nothing leased to the dead. The owner's table is the authority; this is the
account of the leases that went through the broker. Knows no sockets: what owners must be told is
returned.
"""

from __future__ import annotations

from collections.abc import Iterable

from zmqtriton_floor.wire import Block


class Leases:
    """Leases by the serial of their holder."""

    def __init__(self) -> None:
        self._held: dict[int, dict[Block, int]] = {}
        #: The leases of all holders together.
        self._all: dict[Block, int] = {}
        #: The bytes of a held block that its holders know of: where they begin and end.
        self._extents: dict[Block, tuple[int, int]] = {}

    def lease(self, holder: int, blocks: Iterable[Block]) -> None:
        """Count blocks as held; they are with the holder or on their way to it."""
        held = self._held.get(holder)
        for block in blocks:
            if held is None:
                held = self._held[holder] = {}
            held[block] = held.get(block, 0) + 1
            self._all[block] = self._all.get(block, 0) + 1

    def widen_extent(self, block: Block, start: int, end: int) -> None:
        """Note that a process was told of these bytes of a block, and may tell others."""
        if block in self._all:
            low, high = self._extents.get(block, (start, end))
            self._extents[block] = min(low, start), max(high, end)

    def covers(self, holder: int, block: Block, start: int, end: int) -> bool:
        """True if a lease allows the holder to know of these bytes.

        Of a block that an earlier broker has leased, nobody knows which bytes it was told of: all
        are allowed.
        """
        low, high = self._extents.get(block, (start, end))
        return self.has(holder, block) and low <= start and end <= high

    def _drop(self, block: Block, count: int = 1) -> None:
        left = self._all.pop(block) - count
        if left > 0:
            self._all[block] = left
        else:
            self._extents.pop(block, None)

    def has(self, holder: int, block: Block) -> bool:
        held = self._held.get(holder)
        return held is not None and block in held

    def release(self, holder: int, blocks: Iterable[Block]) -> list[Block]:
        """Release blocks, and return those that the holder really had.

        The others were freed already, or were its own.
        """
        held = self._held.get(holder)
        if held is None:
            return []
        released = []
        for block in blocks:
            count = held.pop(block, 0)
            if count:
                released.append(block)
                self._drop(block)
            if count > 1:
                held[block] = count - 1
        if not held:
            del self._held[holder]
        return released

    def hand_over(self, holder: int, to: int, blocks: Iterable[Block]) -> None:
        """Move leases to another holder; owners need not be told."""
        blocks = [*blocks]
        extents = {block: self._extents[block] for block in blocks if block in self._extents}
        self.lease(to, self.release(holder, blocks))
        for block, extent in extents.items():
            self.widen_extent(block, *extent)

    def forget_holder(self, dead: int) -> list[Block]:
        """Drop all leases of a dead process, and all leases of its memory."""
        left = [block for block, count in self._held.pop(dead, {}).items() for _ in range(count)]
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
        """Return the number of leases."""
        return sum(sum(held.values()) for held in self._held.values())
