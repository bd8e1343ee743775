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
from array import array
from typing import Callable, Collection, FrozenSet, Iterable, Optional, Tuple

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

#: A number of the memory, which is numbers alone. Aligned, so that the processor writes it as a
#: whole.
_NUMBER = struct.Struct("=Q")
#: Positions of the fence, of the counts of both halves, and of the requests: of each the serial
#: number of the peer that sent it, and its id there.
_FENCE_AT, _COUNTS_AT, _KEYS_AT = 1, 2, 4
#: Minimum number of requests in a half before the stub goes on in the other one.
_LEAST_KEYS = 2048
#: Any request may have begun.
_UNKNOWN = (1 << 64) - 1

#: A request: the serial number of the peer that sent it, and its id there.
RequestKey = Tuple[int, int]


def has_begun(descriptor: int) -> bool:
    """True if the stub has begun to execute a batch; without mapping its page."""
    return any(os.pread(descriptor, _NUMBER.size, 0))


def end(descriptor: int) -> None:
    """Keep the stub from beginning anything more, of any broker; without mapping its page."""
    os.pwrite(descriptor, _NUMBER.pack(_NO_EPOCH), _FENCE_AT * _NUMBER.size)


class ProgressView:
    """The memory as a stub or a broker maps it."""

    def __init__(self, descriptor: int) -> None:
        """Map the memory, after which the descriptor may be closed; for -1, map new memory.

        Raises OSError or ValueError for a bad descriptor.
        """
        self._page = page = mmap.mmap(descriptor, SIZE if descriptor == -1 else 0)
        self._numbers = memoryview(page)[: len(page) // 8 * 8].cast("Q")
        #: Maximum number of requests in one half.
        self._room = (len(self._numbers) - _KEYS_AT) // 4
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
        before, written, numbers = self._begun, len(keys), self._numbers
        if self._count + written > self._enough:
            self._make_room(written, unsettled)
        count, half = self._count, self._half
        if count != _UNKNOWN:
            at = _KEYS_AT + 2 * (half * self._room + count)
            for key in keys:
                numbers[at], numbers[at + 1] = key
                at += 2
            self._count = numbers[_COUNTS_AT + half] = count + written
        if batch > before:
            self._begun = numbers[0] = batch
        if not batch or batch >> EPOCH_SHIFT >= numbers[_FENCE_AT]:
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
        self._numbers[_COUNTS_AT + other] = 0
        flat = array("Q", [number for key in kept for number in key])
        at = _KEYS_AT + 2 * other * self._room
        self._numbers[at : at + len(flat)] = memoryview(flat)
        self._half, self._enough = other, min(max(_LEAST_KEYS, 2 * count), self._room)
        self._set_count(len(kept))
        if self._numbers[_COUNTS_AT + 1 - other] == _UNKNOWN:
            self._numbers[_COUNTS_AT + 1 - other] = 0

    def _set_count(self, count: int) -> None:
        self._count = self._numbers[_COUNTS_AT + self._half] = count

    def forget_keys(self) -> None:
        """Give up the list of begun requests: from now on any request may have begun."""
        self._set_count(_UNKNOWN)

    @property
    def has_ended(self) -> bool:
        """True if end() was called: no batch is begun any more, of any broker."""
        return self._numbers[_FENCE_AT] == _NO_EPOCH

    def restore(self) -> None:
        """Write overwritten numbers again, for a reader that comes after this process."""
        self._numbers[0] = self._begun
        self.forget_keys()

    # ------------------------------------------------------- the broker's side

    @property
    def last_begun_batch(self) -> int:
        """Return the last batch that was begun, 0 before the first."""
        return self._numbers[0]

    def fence(self, epoch: int) -> None:
        """Keep the stub from batches of a broker before this epoch."""
        self._numbers[_FENCE_AT] = epoch

    def may_have_begun(self, key: RequestKey) -> bool:
        """True if the stub has begun the request, or may have; reliable once it is fenced."""
        begun = self.begun_keys()
        return begun is None or key in begun

    def begun_keys(self) -> Optional[FrozenSet[RequestKey]]:
        """Return the requests that the stub may have begun; None if they are too many to say.

        Reliable behind a fence, and when the stub is dead.
        """
        counts = self._numbers[_COUNTS_AT:_KEYS_AT].tolist()
        state = (self.last_begun_batch, *counts)
        if self._read[0] != state:
            self._read = state, self._union(counts)
        return self._read[1]

    def _union(self, counts: Iterable[int]) -> Optional[FrozenSet[RequestKey]]:
        begun: FrozenSet[RequestKey] = frozenset()
        for half, count in enumerate(counts):
            if count > self._room:
                return None
            begun |= self._keys_of(half, count)
        return begun

    def _keys_of(self, half: int, count: int) -> FrozenSet[RequestKey]:
        at = _KEYS_AT + 2 * half * self._room
        flat = self._numbers[at : at + 2 * count].tolist()
        return frozenset(zip(flat[::2], flat[1::2]))

    def close(self) -> None:
        self._numbers.release()
        self._page.close()
