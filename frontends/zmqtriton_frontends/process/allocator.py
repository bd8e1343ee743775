"""Tunes the C library to keep freed memory, for a process that passes megabytes all the time.

Called once in each process that serves, before anything large is allocated. A message that passes
is copied, in grpc several times, and by default every such copy lies in pages fresh from the
kernel, which costs up to five times as much as the copying.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8

#: glibc takes no more. Larger pieces still come from the kernel and go back to it at once.
_FROM_HEAP_BYTES = 32 << 20
#: How much free memory at the end of the heap stays; the copies of a message of 16 MiB fit.
_KEPT_BYTES = 64 << 20


def keep_freed_memory() -> bool:
    """Apply the setting; False if the C library has none."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # musl
        return False
    wishes = (
        (_M_MMAP_THRESHOLD, _FROM_HEAP_BYTES),
        (_M_TRIM_THRESHOLD, _KEPT_BYTES),
        # otherwise each thread that reads a large document keeps as much at the end of a heap of
        # its own, where give_back_memory() does not reach
        (_M_ARENA_MAX, 1),
    )
    return all(mallopt(setting, size) for setting, size in wishes)


class Freed:
    """Notes that much will be freed soon that no ledger holds: documents, while they are read."""

    #: When it is freed is not known: so often give_back_memory() is worth a try.
    _CHECKS = 5

    def __init__(self) -> None:
        self._checks = 0

    def expect(self) -> None:
        self._checks = self._CHECKS

    def is_likely(self) -> bool:
        """True if something may have been freed since. To be called once a second."""
        if not self._checks:
            return False
        self._checks -= 1
        return True


#: Of this process.
freed = Freed()


def give_back_memory() -> None:
    """Give freed memory back to the kernel, but for a part worth keeping.

    By itself the C library gives back only what lies at the end of its heap.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(_KEPT_BYTES))
