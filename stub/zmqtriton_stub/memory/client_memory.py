"""Memory of this process for clients, by the process that serves them.

That process books what has come and refuses what it has no room for. What it has not come to yet,
and what waits here because its readers are behind, is bounded by as much as it may hold.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Iterable

if TYPE_CHECKING:
    from zmqtriton_floor.arena import Arena

#: So many blocks are noted before those that are free again are looked for.
_MANY = 256


class ClientMemory:
    """Thread-safe."""

    def __init__(self, arena: Arena, limit: int) -> None:
        self._arena = arena
        self._limit = limit
        #: Reentrant, as a destructor within may end a stream.
        self._lock = threading.RLock()
        #: The sizes of blocks by their numbers, by peer; and those of a peer together.
        self._blocks: dict[int, dict[int, int]] = {}
        self._bytes: dict[int, int] = {}
        #: What waits in this process, by peer.
        self._kept: dict[int, int] = {}

    def keep(self, peer: int, more: int) -> None:
        """Note that more, or less, waits in this process until a peer has read what it was sent."""
        with self._lock:
            kept = self._kept.get(peer, 0) + more
            if kept:
                self._kept[peer] = kept
            else:
                self._kept.pop(peer, None)

    def add(self, peer: int, blocks: Iterable[int]) -> None:
        """Note blocks of a response that leaves for a peer."""
        with self._lock:
            noted = self._blocks.setdefault(peer, {})
            for block in blocks:
                noted[block] = size = self._arena.size(block)
                self._bytes[peer] = self._bytes.get(peer, 0) + size
            if len(noted) > _MANY:
                self._forget_free(peer)

    def is_full(self, peer: int) -> bool:
        """Return whether a peer has to release some before it gets more."""
        return not self._is_below(self._limit, peer)

    def may_keep(self, peer: int) -> bool:
        """Return whether more may wait in this process for a peer."""
        return self._is_below(self._limit - self._kept.get(peer, 0), peer)

    def _is_below(self, limit: int, peer: int) -> bool:
        if self._bytes.get(peer, 0) < limit:
            return True
        with self._lock:
            self._forget_free(peer)
            return self._bytes.get(peer, 0) < limit

    def _forget_free(self, peer: int) -> None:
        noted = self._blocks.get(peer)
        if noted is None or not self._arena.used:  # which looks what is free
            self._blocks.pop(peer, None)
            self._bytes.pop(peer, None)
            return
        for block in [block for block in noted if not self._arena.size(block)]:
            self._bytes[peer] -= noted.pop(block)
