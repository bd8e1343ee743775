"""Asks the kernel whether this process has written to pages of a private mapping.

mappings.py asks before it drops what a model has changed: mapping pages anew costs ten times as
much, and most models only read.
"""

from __future__ import annotations

import os

from zmqtriton_floor.arena import PAGE

_ENTRY_BYTES = 8
#: Bits of an entry's last byte: the page is in memory, is swapped out, is the file's own.
_PRESENT, _SWAPPED, _OF_FILE = 128, 64, 32
#: By such a byte: 1 for a private page. As a table it takes a tenth of numpy's time.
_IS_OWN = bytes(bool(b & (_PRESENT | _SWAPPED)) and not b & _OF_FILE for b in range(256))


class Pagemap:
    """The page map of the process that creates it."""

    def __init__(self, path: str = "/proc/self/pagemap") -> None:
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # a sandbox without it
            self._descriptor = -1
        self._pid = os.getpid()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def is_unwritten(self, address: int, size: int) -> bool:
        """True if every page in this range of a private mapping is the file's own or not present.

        False if one is a private copy, or if that is unknown.
        """
        # a fork would be told of its parent's pages
        if self._descriptor < 0 or self._pid != os.getpid():
            return False
        count = (address + size + PAGE - 1) // PAGE - address // PAGE
        try:
            entries = os.pread(
                self._descriptor, count * _ENTRY_BYTES, address // PAGE * _ENTRY_BYTES
            )
        except OSError:
            return False
        if len(entries) != count * _ENTRY_BYTES:
            return False
        return 1 not in entries[_ENTRY_BYTES - 1 :: _ENTRY_BYTES].translate(_IS_OWN)
