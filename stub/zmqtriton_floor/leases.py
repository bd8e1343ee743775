"""Leases of an arena's blocks: a block is free when each of its leases has ended.

The life of a block, as its owner counts it. Each lease is in one of three places:

    kind      who reads the block             begins with           ends with
    own       this process: an array, a call  begin, add            end
              without its final reply
    out       another process, or a message   send (of own leases), take_back: the release of
              on its way to one               lend, take_leases     the process that had it
    doubted   perhaps a process, which a      doubt (of all that    end_doubted: each process has
              dead broker knew of             are out)              reported its leases

             begin, add        send
    no lease ─────────▶  own  ──────▶  out  ──── doubt ────▶  doubted
        ▲                 │     lend ───▶│                       │
        └───── end ───────┴── take_back ─┴───── end_doubted ─────┘

The broker keeps the account of leases that are out. It grants one while another lease keeps the
block: that of the call, or of the holder, that it acts for. So the rule is: **what may end a
lease must not be carried out before the leases that were granted because of it.** Connections
keep order each, and none between them, and a stub has two. Leases and releases come on the
connection that brings its batches. On the other one, a reply ends the leases of a call; before it
comes `wire.LeasesSent` with the number of leases sent so far, and `end` waits here until as many
have been taken.
"""

from __future__ import annotations

from collections import Counter, deque
from itertools import repeat
from typing import Collection, Iterable

#: Block number of the change with which each process has reported its leases; blocks count from 1.
_ALL_REPORTED = 0
#: Block number of the change that counts the leases which the broker has granted.
_TAKEN = -1


class Leases:
    """The leases of all blocks, by block number.

    Changes wait for `apply()`, which the arena calls under its lock: a destructor that the garbage
    collector runs amid an allocation must neither wait nor change what the allocation reads. Blocks
    that do not exist (any more) are ignored.
    """

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        #: Number of leases that the present broker knows of.
        self._out: dict[int, int] = {}
        #: Number of them that went out by way of earlier brokers and are not reported yet.
        self._doubted: Counter[int] = Counter()
        #: Block; the change of its leases, and of those that are out; number of leases of the
        #: present broker that must have been taken before.
        self._changes: deque[tuple[int, int, int, int]] = deque()
        #: Number of leases taken of the present broker.
        self._taken = 0
        #: Ends of own leases that wait for others to be taken: block and number.
        self._waiting: list[tuple[int, int]] = []

    def begin(self, block: int) -> None:
        """Give a new block its first lease. Called under the arena's lock."""
        self._counts[block] = 1

    def add(self, blocks: Iterable[int]) -> None:
        """Add a lease of this process to each block."""
        self._changes.extend(zip(blocks, repeat(1), repeat(0), repeat(0)))

    def end(self, blocks: Iterable[int], after: int = 0) -> None:
        """End a lease of this process on each block.

        The lease ends only after the first `after` leases of the present broker were taken.
        """
        self._changes.extend(zip(blocks, repeat(-1), repeat(0), repeat(after)))

    def send(self, blocks: Iterable[int]) -> None:
        """Turn a lease of this process on each block into a lease of the receiver of a message."""
        self._changes.extend(zip(blocks, repeat(0), repeat(1), repeat(0)))

    def lend(self, blocks: Iterable[int]) -> None:
        """Add a lease of another process to each block."""
        self._changes.extend(zip(blocks, repeat(1), repeat(1), repeat(0)))

    def take_leases(self, blocks: Collection[int]) -> None:
        """Add a lease of another process to each block, and count them as granted by the broker."""
        self._changes.extend(zip(blocks, repeat(1), repeat(1), repeat(0)))
        self._changes.append((_TAKEN, len(blocks), 0, 0))

    def take_back(self, blocks: Iterable[int]) -> None:
        """End a lease of another process on each block, because that process has released it."""
        self._changes.extend(zip(blocks, repeat(-1), repeat(-1), repeat(0)))

    def doubt(self) -> None:
        """Doubt all leases that were granted by a broker which has died, with its account of them.

        The next broker grants a lease again if a process reports the block, or if an answer that
        refers to it is repeated. Called under the arena's lock, after `apply()`.
        """
        self._doubted.update(self._out)
        self._out = {}
        # leases of the dead broker that these waited for may be lost: others may read the blocks
        self._doubted.update(block for block, _ in self._waiting)
        self._waiting, self._taken = [], 0

    def end_doubted(self) -> None:
        """End the leases still in doubt: every process has reported which ones it holds."""
        self._changes.append((_ALL_REPORTED, 0, 0, 0))

    def apply(self) -> list[int]:
        """Carry out the changes; returns the blocks that have become free."""
        changes, counts, out = self._changes, self._counts, self._out
        freed = []
        while changes:
            block, change, change_out, after = changes.popleft()
            if block == _ALL_REPORTED:
                doubted, self._doubted = self._doubted, Counter()
                changes.extend((block, -count, 0, 0) for block, count in doubted.items())
            elif block == _TAKEN:
                self._taken += change
                if self._waiting:
                    waiting, self._waiting = self._waiting, []
                    changes.extendleft((block, -1, 0, after) for block, after in waiting)
            if block not in counts:
                continue
            if after > self._taken:
                self._waiting.append((block, after))
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
