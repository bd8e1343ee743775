"""A stub's progress: memory that it shares with the broker.

The stub writes the number and the requests of the batch that it is about to execute. When the stub
dies, the broker reads there which requests had been sent ahead and were not begun, and gives them
to another stub; requests that were begun are not run twice. If a broker takes over while the stub
executes and cannot send a Hello, the new broker reads the same memory. It fences the stub off
first, so that the stub begins no batch of an earlier broker any more. The supervisor makes the
memory; numbers of batches only grow.

Requests are written into two halves in turn. When one half has enough requests, the stub clears the
other, and begins it with the requests that their senders may repeat; so whenever the stub dies, at
least one half has all of these. Enough is twice their number: a busy stub seldom has to gather
them, and a calm one uses little memory.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import Callable, Collection, FrozenSet, Iterable, List, Optional, Tuple

#: Bytes of the memory. It has room for more requests than a stub can answer in one second, since a
#: broker may have failed to pass on the answers of its last second. The kernel allocates pages as
#: they are written.
SIZE = 4 << 20
#: Bits of the shift from a broker's epoch to the number of its first batch.
EPOCH_SHIFT = 40
#: A fence counts once it has been there for so long: by then each side sees what the other wrote.
FENCE_NS = 20_000_000
#: Above those of all brokers.
_NO_EPOCH = (1 << 64 - EPOCH_SHIFT) - 1

#: Aligned, so that the processor writes it as a whole.
_NUMBER = struct.Struct("=Q")
_COUNT = struct.Struct("=q")
#: One request as it is written: serial number of the peer that sent it, and its id there.
_KEY = struct.Struct("=QQ")
_FENCE_AT, _COUNTS_AT, _KEYS_AT = 8, (16, 24), 32
#: Minimum number of requests in a half before the stub goes on in the other one.
_LEAST_KEYS = 2048
#: Any request may have begun.
_UNKNOWN = -1

#: A request: the serial number of the peer that sent it, and its id there.
RequestKey = Tuple[int, int]


def has_begun(descriptor: int) -> bool:
    """True if the stub has begun to execute a batch; without mapping its page."""
    return any(os.pread(descriptor, _NUMBER.size, 0))


def end(descriptor: int) -> None:
    """Forbid the stub to begin another batch, of any broker; without mapping its page."""
    os.pwrite(descriptor, _NUMBER.pack(_NO_EPOCH), _FENCE_AT)


class ProgressView:
    """The memory as a stub or a broker maps it."""

    def __init__(self, descriptor: int) -> None:
        """Map the memory, after which the descriptor may be closed; for -1, map new memory.

        Raises OSError or ValueError for a bad descriptor.
        """
        self._page = mmap.mmap(descriptor, SIZE if descriptor == -1 else 0)
        #: Maximum number of requests in one half.
        self._room = (len(self._page) - _KEYS_AT) // 2 // _KEY.size
        self._begun = 0
        #: The half that is written, how many requests are in it, and how many are enough.
        self._half = 0
        self._count = 0
        self._enough = min(_LEAST_KEYS, self._room)
        #: Number of requests that have begun since there were too many to name. Once it exceeds
        #: what a half can hold, the stub tries to name them again.
        self._unnamed = 0
        #: The broker's last reading: the numbers of batch and requests that were there, and the
        #: requests that may have begun (None: unknown). It is reused until a number changes.
        self._read: Tuple[Tuple[int, ...], Optional[FrozenSet[RequestKey]]] = ((), None)

    # --------------------------------------------------------- the stub's side

    def begin(
        self,
        batch: int,
        keys: Collection[RequestKey] = (),
        unsettled: Callable[[], Collection[RequestKey]] = tuple,
    ) -> bool:
        """Write the number before executing a batch; False if it must not be executed any more.

        `keys` are the requests of this batch. `unsettled` returns the requests that this process
        may have begun, and those whose answers the broker may not have passed on yet. A batch that
        had to wait for its tensors may begin after batches with greater numbers; the greatest
        number counts.
        """
        before, written = self._begun, len(keys)
        if self._count == _UNKNOWN or self._count + written > self._enough:
            self._make_room(written, unsettled)
        if self._count != _UNKNOWN:
            at = _KEYS_AT + (self._half * self._room + self._count) * _KEY.size
            for key in keys:
                _KEY.pack_into(self._page, at, *key)
                at += _KEY.size
            self._count += written
            _COUNT.pack_into(self._page, _COUNTS_AT[self._half], self._count)
        if batch > before:
            self._begun = batch
            _NUMBER.pack_into(self._page, 0, batch)
        fence: int = _NUMBER.unpack_from(self._page, _FENCE_AT)[0]
        if not batch or batch >> EPOCH_SHIFT >= fence:
            return True
        self._begun = before
        if self._count != _UNKNOWN:
            self._set_count(self._count - written)
        return False

    def _make_room(self, needed: int, unsettled: Callable[[], Collection[RequestKey]]) -> None:
        """Continue in the other half, beginning with the requests that may still be repeated."""
        if self._count == _UNKNOWN:
            self._unnamed += needed
            if self._unnamed < self._room:
                return  # to gather them is work, and there were too many a moment ago
            kept = frozenset(unsettled())
        else:
            kept = self._keys_of(self._half, self._count).intersection(unsettled())
        self._unnamed = 0
        count = len(kept) + needed
        if count > self._room:
            self.forget_keys()
            return
        other = 1 - self._half
        _COUNT.pack_into(self._page, _COUNTS_AT[other], 0)
        flat = [number for key in kept for number in key]
        at = _KEYS_AT + other * self._room * _KEY.size
        struct.pack_into(f"={len(flat)}Q", self._page, at, *flat)
        self._half, self._enough = other, min(max(_LEAST_KEYS, 2 * count), self._room)
        self._set_count(len(kept))
        if _COUNT.unpack_from(self._page, _COUNTS_AT[1 - other])[0] == _UNKNOWN:
            _COUNT.pack_into(self._page, _COUNTS_AT[1 - other], 0)

    def _set_count(self, count: int) -> None:
        self._count = count
        _COUNT.pack_into(self._page, _COUNTS_AT[self._half], count)

    def forget_keys(self) -> None:
        """Give up the list of begun requests: from now on any request may have begun."""
        self._set_count(_UNKNOWN)

    @property
    def has_ended(self) -> bool:
        """True if end() was called: the stub begins no more batches, of any broker."""
        fence: int = _NUMBER.unpack_from(self._page, _FENCE_AT)[0]
        return fence == _NO_EPOCH

    def restore(self) -> None:
        """Undo end() for readers after this process: write the number of the last batch again."""
        _NUMBER.pack_into(self._page, 0, self._begun)
        self.forget_keys()

    # ------------------------------------------------------- the broker's side

    @property
    def last_begun_batch(self) -> int:
        """Return the last batch that was begun, 0 before the first."""
        number: int = _NUMBER.unpack_from(self._page, 0)[0]
        return number

    def fence(self, epoch: int) -> None:
        """Forbid the stub to begin batches of brokers before this epoch."""
        _NUMBER.pack_into(self._page, _FENCE_AT, epoch)

    def may_have_begun(self, key: RequestKey) -> bool:
        """True if the stub has begun the request, or may have; reliable once it is fenced."""
        begun = self.begun_keys()
        return begun is None or key in begun

    def begun_keys(self) -> Optional[FrozenSet[RequestKey]]:
        """Return the requests that the stub may have begun; None if they are too many to say.

        Reliable behind a fence, and when the stub is dead.
        """
        counts: List[int] = [_COUNT.unpack_from(self._page, at)[0] for at in _COUNTS_AT]
        state = (self.last_begun_batch, *counts)
        if self._read[0] != state:
            self._read = state, self._union(counts)
        return self._read[1]

    def _union(self, counts: Iterable[int]) -> Optional[FrozenSet[RequestKey]]:
        begun: FrozenSet[RequestKey] = frozenset()
        for half, count in enumerate(counts):
            if not 0 <= count <= self._room:
                return None
            begun |= self._keys_of(half, count)
        return begun

    def _keys_of(self, half: int, count: int) -> FrozenSet[RequestKey]:
        at = _KEYS_AT + half * self._room * _KEY.size
        flat = struct.unpack_from(f"={2 * count}Q", self._page, at)
        return frozenset(zip(flat[::2], flat[1::2]))

    def close(self) -> None:
        self._page.close()
