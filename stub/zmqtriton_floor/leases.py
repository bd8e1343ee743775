"""Leases of an arena's blocks: a block is free when each of its leases has ended.

A lease is this process's own, or it is out: with the process that a message took it to. The broker
keeps the account of those; when it dies, leases that went out before are in doubt until every
process has reported to the next broker which ones it holds.
"""

from __future__ import annotations

from collections import deque
from typing import Iterable

#: In place of a block number, which is never 0: every process has reported its leases.
_ALL_REPORTED = 0


class Leases:
    """The leases of all blocks, by block number.

    Changes wait for `apply()`, which the arena calls under its lock: a destructor that the garbage
    collector runs amid an allocation must neither wait nor change what that is reading. Blocks
    that do not exist, or no longer do, are ignored.
    """

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        #: How many of them are out by way of the present broker.
        self._out: dict[int, int] = {}
        #: How many of them went out by way of earlier brokers and are not reported yet.
        self._doubted: dict[int, int] = {}
        #: The block, and by how much its leases and those that are out change.
        self._changes: deque[tuple[int, int, int]] = deque()

    def begin(self, block: int) -> None:
        """Give a new block its first lease. Called under the arena's lock."""
        self._counts[block] = 1

    def add(self, blocks: Iterable[int]) -> None:
        """Add one lease of this process's own for each."""
        for block in blocks:
            self._changes.append((block, 1, 0))

    def end(self, blocks: Iterable[int]) -> None:
        """End one lease of this process's own for each."""
        for block in blocks:
            self._changes.append((block, -1, 0))

    def send(self, blocks: Iterable[int]) -> None:
        """Pass one lease of this process's own for each to the receiver of a message."""
        for block in blocks:
            self._changes.append((block, 0, 1))

    def lend(self, blocks: Iterable[int]) -> None:
        """Add one lease of another process for each."""
        for block in blocks:
            self._changes.append((block, 1, 1))

    def take_back(self, blocks: Iterable[int]) -> None:
        """End one lease of another process for each."""
        for block in blocks:
            self._changes.append((block, -1, -1))

    def doubt(self, confirmed: Iterable[int] = ()) -> None:
        """Doubt all leases given out through a broker that has died with the account of them.

        The confirmed ones are excepted, which this process reports itself. Called under the arena's
        lock, after `apply()`.
        """
        out, doubted = self._out, self._doubted
        self._out = {}
        for block in confirmed:
            if out.get(block, 0) > 0:
                out[block] -= 1
                self._out[block] = self._out.get(block, 0) + 1
        for block, count in out.items():
            doubted[block] = doubted.get(block, 0) + count

    def end_doubted(self) -> None:
        """End the leases still in doubt: every process has reported which ones it holds."""
        self._changes.append((_ALL_REPORTED, 0, 0))

    def apply(self) -> list[int]:
        """Carry out the changes; returns the blocks that have become free."""
        changes, counts, out = self._changes, self._counts, self._out
        freed = []
        while changes:
            block, change, change_out = changes.popleft()
            if block == _ALL_REPORTED:
                doubted, self._doubted = self._doubted, {}
                changes.extend((block, -count, 0) for block, count in doubted.items())
            if block not in counts:
                continue
            counts[block] += change
            if change_out:
                out[block] = out.get(block, 0) + change_out
                if out[block] <= 0:
                    del out[block]
            if counts[block] <= 0:
                del counts[block]
                out.pop(block, None)
                self._doubted.pop(block, None)
                freed.append(block)
        return freed
