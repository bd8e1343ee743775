"""A stub's progress: one number in a page that it shares with the broker.

The stub writes the number of the batch that it is about to execute. When it dies the broker reads
it there: what was sent ahead and not begun is given to another stub, and what was begun is not run
twice. The supervisor makes the page; numbers of batches only grow.
"""

from __future__ import annotations

import mmap
import os
import struct

SIZE = mmap.PAGESIZE
#: Aligned, so that the processor writes it as a whole.
_NUMBER = struct.Struct("=Q")


def has_begun(descriptor: int) -> bool:
    """True if the stub has begun to execute a batch; without mapping its page."""
    return any(os.pread(descriptor, _NUMBER.size, 0))


class Progress:
    """One side's view of the page."""

    def __init__(self, descriptor: int) -> None:
        """Map the page; the descriptor may be closed afterwards.

        Raises OSError or ValueError for a bad one.
        """
        self._page = mmap.mmap(descriptor, SIZE)
        self._begun = 0

    def begin(self, batch: int) -> None:
        """Write the number before executing a batch; the stub's side.

        A batch that had to wait for its tensors may come after later ones; the last of all counts.
        """
        if batch > self._begun:
            self._begun = batch
            _NUMBER.pack_into(self._page, 0, batch)

    @property
    def last_begun_batch(self) -> int:
        """Return the last batch that was begun, 0 before the first; the broker's side."""
        number: int = _NUMBER.unpack_from(self._page, 0)[0]
        return number

    def close(self) -> None:
        self._page.close()
