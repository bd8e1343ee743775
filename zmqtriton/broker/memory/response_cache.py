"""The response cache: answers by request, limited in bytes; the least recently used is dropped.

Plain data for `cache_lookup`, which decides which answers are kept and who holds the blocks.
Dropped entries are returned, so that their blocks can be released.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from zmqtriton_floor.wire import Block

#: The generation, the ensemble it was asked through (0: none), the asking generation (0: a client)
#: and the digest of the request.
CacheKey = tuple[int, int, int, bytes]

#: The estimated size of an entry without its body.
_OVERHEAD = 512


@dataclass(slots=True, eq=False)
class CacheEntry:
    key: CacheKey
    body: bytes
    #: The blocks that the body refers to. The entry holds one lease of each.
    blocks: list[Block]
    #: The size of the blocks.
    shared: int

    @property
    def size(self) -> int:
        return len(self.body) + self.shared + _OVERHEAD


class ResponseCache:
    def __init__(self, max_bytes: int, max_shared: int) -> None:
        """Set the limits: bytes in all, and bytes of blocks in shared memory."""
        self.max_bytes = max_bytes
        self._max_shared = max_shared
        self.size = 0
        self.evictions = 0
        self._shared = 0
        self._entries: OrderedDict[CacheKey, CacheEntry] = OrderedDict()
        #: Keys of answers by their generation, and by the owners of their blocks.
        self.by_generation: dict[int, set[CacheKey]] = {}
        self.by_owner: dict[int, set[CacheKey]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: CacheKey) -> CacheEntry | None:
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def fits(self, entry: CacheEntry) -> bool:
        """True if put() would store the entry: it is new and not larger than the cache."""
        is_small = entry.size <= self.max_bytes and entry.shared <= self._max_shared
        return is_small and entry.key not in self._entries

    def put(self, entry: CacheEntry) -> list[CacheEntry]:
        """Add an entry, and return the entries that were dropped for it."""
        gone = []
        # Make room with entries that use shared memory; small ones need not go for a large one.
        while self._shared + entry.shared > self._max_shared:
            gone.append(self._drop(next(k for k, e in self._entries.items() if e.shared)))
        while self.size + entry.size > self.max_bytes:
            gone.append(self._drop(next(iter(self._entries))))
        self.evictions += len(gone)
        self._entries[entry.key] = entry
        self.by_generation.setdefault(entry.key[0], set()).add(entry.key)
        for owner in {block.owner for block in entry.blocks}:
            self.by_owner.setdefault(owner, set()).add(entry.key)
        self.size += entry.size
        self._shared += entry.shared
        return gone

    def drop_all(self, keys: Iterable[CacheKey]) -> list[CacheEntry]:
        """Drop the answers with these keys, and return them."""
        return [self._drop(key) for key in tuple(keys)]

    def _drop(self, key: CacheKey) -> CacheEntry:
        entry = self._entries.pop(key)
        self.size -= entry.size
        self._shared -= entry.shared
        _discard(self.by_generation, key[0], key)
        for owner in {block.owner for block in entry.blocks}:
            _discard(self.by_owner, owner, key)
        return entry


def _discard(index: dict[int, set[CacheKey]], at: int, key: CacheKey) -> None:
    keys = index[at]
    keys.discard(key)
    if not keys:
        del index[at]
