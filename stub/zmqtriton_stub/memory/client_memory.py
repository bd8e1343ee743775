"""Memory of this arena on its way to clients, by the process that serves them.

That process books what has come and refuses what it has no room for. What it has not come to yet is
bounded here, by as much as it may hold.
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
        self._lock = threading.Lock()
        #: The sizes of blocks by their numbers, by peer; and those of a peer together.
        self._blocks: dict[int, dict[int, int]] = {}
        self._bytes: dict[int, int] = {}

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
        if self._bytes.get(peer, 0) < self._limit:
            return False
        with self._lock:
            self._forget_free(peer)
            return self._bytes.get(peer, 0) >= self._limit

    def _forget_free(self, peer: int) -> None:
        noted = self._blocks.get(peer)
        if noted is None or not self._arena.used:  # which looks what is free
            self._blocks.pop(peer, None)
            self._bytes.pop(peer, None)
            return
        for block in [block for block in noted if not self._arena.size(block)]:
            self._bytes[peer] -= noted.pop(block)
