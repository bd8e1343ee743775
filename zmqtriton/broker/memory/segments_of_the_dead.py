"""The memory of dead processes that others still read: the supervisor keeps it for them.

A segment stays for as long as one of its blocks has a lease, or an early response whose request is
not yet repeated. A broker that follows another knows these only once each process has reported its
leases, and reports nothing before. Knows no sockets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from zmqtriton.broker.outbox import Outbox
from zmqtriton_floor.wire import MAX_ROWS, Block, LeasedSegments


class SegmentsOfTheDead:
    def __init__(self, outbox: Outbox, used_blocks: Callable[[], Iterable[Block]]) -> None:
        """Set up; `used_blocks` returns all owners' blocks that a process reads or will read."""
        self._outbox = outbox
        self._used_blocks = used_blocks
        #: Segments that the supervisor keeps, as this broker has last reported them, by dead owner;
        #: None before the first report.
        self._kept: dict[int, set[int] | None] = {}
        #: Dead owners whose used segments may have changed since the last report.
        self.changed: set[int] = set()

    def add(self, owner: int) -> None:
        """Add a dead process; the next report names its segments that are still read."""
        self._kept[owner] = None
        self.changed.add(owner)

    def __contains__(self, owner: object) -> bool:
        return owner in self._kept

    def __iter__(self) -> Iterator[int]:
        return iter(self._kept)

    def note_release(self, owner: int) -> None:
        """Report a dead owner's segments again, because a lease of its memory may have ended."""
        if owner in self._kept:
            self.changed.add(owner)

    def tell(self) -> None:
        """Report to the supervisor which segments are still read.

        Call this only once all leases are known.
        """
        used: dict[int, set[int]] = {owner: set() for owner in self.changed}
        for block in self._used_blocks():
            if block.owner in used:
                used[block.owner].add(block.segment)
        self.changed.clear()
        for owner, segments in used.items():
            if segments != self._kept[owner] and len(segments) <= MAX_ROWS:
                self._kept[owner] = segments
                self._outbox.supervisor.append(LeasedSegments(owner, sorted(segments)))
            if not segments:
                del self._kept[owner]
