"""A stub's progress: memory that it shares with the broker.

The stub writes the number of the batch that it is about to execute, and which requests it may have
begun. When it dies the broker reads there what was sent ahead and not begun, and gives that to
another stub; what was begun is not run twice. A broker that takes over while the stub executes, and
cannot say hello, reads the same. It fences the stub off first: of an earlier broker's batches none
is begun any more. The supervisor makes the memory; numbers of batches only grow.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import Collection, FrozenSet, Optional, Tuple

#: Memory is taken as it is written, which only a stub that ends does beyond the first page.
SIZE = 64 * mmap.PAGESIZE
#: A broker numbers its batches from its epoch shifted by so many bits.
EPOCH_SHIFT = 40
#: A fence counts once it has been there for so long: by then each side sees what the other wrote.
FENCE_NS = 20_000_000
#: Above those of all brokers.
_NO_EPOCH = (1 << 64 - EPOCH_SHIFT) - 1
#: More requests than this are not named while batches begin, of which there may be thousands a
#: second.
MOST_KEYS = 16

#: Aligned, so that the processor writes it as a whole.
_NUMBER = struct.Struct("=Q")
_FENCE_AT, _COUNT_AT, _KEYS_AT = 8, 16, 24
_COUNT = struct.Struct("=q")
#: More than a stub answers in the second for which a broker may not have passed them on.
ROOM_FOR_KEYS = (SIZE - _KEYS_AT) // 16
#: Any request may have begun.
_UNKNOWN = -1

#: Who asks, and the id of the request.
RequestKey = Tuple[int, int]


def has_begun(descriptor: int) -> bool:
    """True if the stub has begun to execute a batch; without mapping its page."""
    return any(os.pread(descriptor, _NUMBER.size, 0))


def end(descriptor: int) -> None:
    """Have the stub begin nothing any more, of any broker; without mapping its page."""
    os.pwrite(descriptor, _NUMBER.pack(_NO_EPOCH), _FENCE_AT)


class Progress:
    """One side's view of the page."""

    def __init__(self, descriptor: int) -> None:
        """Map the page; the descriptor may be closed afterwards.

        Raises OSError or ValueError for a bad one.
        """
        self._page = mmap.mmap(descriptor, SIZE)
        self._begun = 0
        self._count = 0

    # --------------------------------------------------------- the stub's side

    def begin(self, batch: int, keys: Collection[RequestKey] | None = None) -> bool:
        """Write the number before executing a batch; False if it must not be executed any more.

        `keys` are the requests of this batch, and all others that have begun and whose answers the
        broker may not have passed on; None if they are too many to say. A batch that had to wait
        for its tensors may come after later ones; the last of all counts.
        """
        if keys is not None:
            self._write_keys(keys)
        elif self._count != _UNKNOWN:
            self._forget_keys()
        before = self._begun
        if batch > before:
            self._begun = batch
            _NUMBER.pack_into(self._page, 0, batch)
        fence: int = _NUMBER.unpack_from(self._page, _FENCE_AT)[0]
        if not batch or batch >> EPOCH_SHIFT >= fence:
            return True
        self._begun = before
        return False

    def finish(self, keys: Collection[RequestKey]) -> None:
        """Write what has begun once nothing more does.

        `keys` are the requests whose answers the broker may not have passed on.
        """
        self._forget_keys()  # a reader must not take the new ones for as many as the old ones were
        if len(keys) <= ROOM_FOR_KEYS:
            self._write_keys(keys)

    def _write_keys(self, keys: Collection[RequestKey]) -> None:
        flat = [number for key in keys for number in key]
        struct.pack_into(f"={len(flat)}Q", self._page, _KEYS_AT, *flat)
        self._count = len(keys)
        _COUNT.pack_into(self._page, _COUNT_AT, self._count)

    def _forget_keys(self) -> None:
        self._count = _UNKNOWN
        _COUNT.pack_into(self._page, _COUNT_AT, _UNKNOWN)

    @property
    def has_ended(self) -> bool:
        """True if end() was called: no batch is begun any more, of any broker."""
        fence: int = _NUMBER.unpack_from(self._page, _FENCE_AT)[0]
        return fence == _NO_EPOCH

    def restore(self) -> None:
        """Write again what was overwritten, for a reader that comes after this process."""
        _NUMBER.pack_into(self._page, 0, self._begun)
        self._forget_keys()

    # ------------------------------------------------------- the broker's side

    @property
    def last_begun_batch(self) -> int:
        """Return the last batch that was begun, 0 before the first."""
        number: int = _NUMBER.unpack_from(self._page, 0)[0]
        return number

    def fence(self, epoch: int) -> None:
        """Have the stub begin no batch of a broker before this epoch."""
        _NUMBER.pack_into(self._page, _FENCE_AT, epoch)

    def may_have_begun(self, key: RequestKey) -> bool:
        """True if the stub has begun the request, or nobody can say; reliable behind a fence."""
        begun = self.begun_keys()
        return begun is None or key in begun

    def begun_keys(self) -> Optional[FrozenSet[RequestKey]]:
        """Return the requests that the stub may have begun; None if they are too many to say.

        Reliable behind a fence, and when the stub is dead.
        """
        count: int = _COUNT.unpack_from(self._page, _COUNT_AT)[0]
        if not 0 <= count <= ROOM_FOR_KEYS:
            return None
        flat = struct.unpack_from(f"={2 * count}Q", self._page, _KEYS_AT)
        return frozenset(zip(flat[::2], flat[1::2]))

    def close(self) -> None:
        self._page.close()
