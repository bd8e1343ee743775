"""The response cache: answers by what was asked, within bounds of bytes; the least used go first.

Plain data for `caching`, which says what may be kept and who holds the blocks. What is dropped to
make room is returned, so that its blocks can be given back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from zmqtriton_floor.wire import Block

#: A generation, the ensemble that it is a member of, who asks (0: no ensemble; clients), and what.
CacheKey = tuple[int, int, int, bytes]

#: What an entry costs beside its body.
_OVERHEAD = 512


class CacheEntry:
    __slots__ = ("blocks", "body", "key", "shared")

    def __init__(self, key: CacheKey, body: bytes, blocks: list[Block], shared: int) -> None:
        self.key = key
        self.body = body
        #: What the body refers to, each held once for this entry.
        self.blocks = blocks
        #: Their bytes.
        self.shared = shared

    @property
    def size(self) -> int:
        return len(self.body) + self.shared + _OVERHEAD


class ResponseCache:
    def __init__(self, most: int, most_shared: int) -> None:
        """Bytes in all, and how many of them may lie in the memory of those who answered."""
        self.max_bytes = most
        self._most_shared = most_shared
        self.size = 0
        self.evictions = 0
        self._shared = 0
        self._entries: OrderedDict[CacheKey, CacheEntry] = OrderedDict()
        self._by_generation: dict[int, set[CacheKey]] = {}
        self._by_owner: dict[int, set[CacheKey]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: CacheKey) -> CacheEntry | None:
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def fits(self, entry: CacheEntry) -> bool:
        """Whether put() takes it: it is new, and not larger than the cache."""
        is_small = entry.size <= self.max_bytes and entry.shared <= self._most_shared
        return is_small and entry.key not in self._entries

    def put(self, entry: CacheEntry) -> list[CacheEntry]:
        """Those that had to go for it."""
        gone = []
        # A large body need not cost all small ones their place: only what is shared counts there.
        while self._shared + entry.shared > self._most_shared:
            gone.append(self._drop(next(k for k, e in self._entries.items() if e.shared)))
        while self.size + entry.size > self.max_bytes:
            gone.append(self._drop(next(iter(self._entries))))
        self.evictions += len(gone)
        self._entries[entry.key] = entry
        self._by_generation.setdefault(entry.key[0], set()).add(entry.key)
        for owner in {block.owner for block in entry.blocks}:
            self._by_owner.setdefault(owner, set()).add(entry.key)
        self.size += entry.size
        self._shared += entry.shared
        return gone

    def forget_generation(self, generation: int) -> list[CacheEntry]:
        """All answers of one that takes no more requests."""
        return self._drop_all(self._by_generation.get(generation, ()))

    def forget_owner(self, owner: int) -> list[CacheEntry]:
        """All that lies in the memory of a dead process."""
        return self._drop_all(self._by_owner.get(owner, ()))

    def _drop_all(self, keys: Iterable[CacheKey]) -> list[CacheEntry]:
        return [self._drop(key) for key in tuple(keys)]

    def _drop(self, key: CacheKey) -> CacheEntry:
        entry = self._entries.pop(key)
        self.size -= entry.size
        self._shared -= entry.shared
        _discard(self._by_generation, key[0], key)
        for owner in {block.owner for block in entry.blocks}:
            _discard(self._by_owner, owner, key)
        return entry


def _discard(index: dict[int, set[CacheKey]], at: int, key: CacheKey) -> None:
    keys = index[at]
    keys.discard(key)
    if not keys:
        del index[at]
