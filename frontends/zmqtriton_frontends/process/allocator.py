"""Tunes the C library to keep freed memory, for a process that passes megabytes all the time.

Called once in each process that serves, before anything large is allocated. A message is copied, in
grpc several times, and by default every copy gets new pages from the kernel, which cost up to five
times as much as the copying.
"""

from __future__ import annotations

import ctypes
import resource
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

#: Opened with the module: a loop waits for no file.
_C_LIBRARY = ctypes.CDLL(None)

#: Largest piece that comes from the heap, in bytes; glibc allows no more. Larger pieces still come
#: from the kernel and go back to it at once.
_FROM_HEAP_BYTES = 32 << 20
#: Bytes of free memory that stay at the end of the heap; the copies of a message of 16 MiB fit.
_KEPT_BYTES = 64 << 20
#: Bytes in use for nothing, times seconds: more is worth giving back.
_MAX_WASTE = 32 << 20
#: Fields of the C library's report: `uordblks` and `hblkhd` are the bytes that it has lent, from
#: the heap and from the kernel.
_USAGE = (
    "arena",
    "ordblks",
    "smblks",
    "hblks",
    "hblkhd",
    "usmblks",
    "fsmblks",
    "uordblks",
    "fordblks",
    "keepcost",
)


def keep_freed_memory() -> bool:
    """Apply the setting; False if the C library does not have it."""
    mallopt = getattr(_C_LIBRARY, "mallopt", None)
    if mallopt is None:  # musl
        return False
    wishes = (
        (-3, _FROM_HEAP_BYTES),  # M_MMAP_THRESHOLD
        (-1, _KEPT_BYTES),  # M_TRIM_THRESHOLD
        # M_ARENA_MAX: otherwise each thread that reads a large document keeps as much at the end of
        # a heap of its own, where give_back_memory() does not reach
        (-8, 1),
    )
    return all(mallopt(setting, size) for setting, size in wishes)


def give_back_memory(kept: int) -> None:
    """Give freed memory back to the kernel, except for `kept` bytes.

    By itself the C library gives back only memory at the end of its heap.
    """
    trim = getattr(_C_LIBRARY, "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(kept))


@lru_cache(1)
def _usage_report() -> Any:
    """Return the C library's function that reports on its memory; None if it has none."""
    # the numbers of the older one begin again at 4 GiB
    for name, number in (("mallinfo2", ctypes.c_ssize_t), ("mallinfo", ctypes.c_int)):
        report = getattr(_C_LIBRARY, name, None)
        if report is not None:
            fields = [(field, number) for field in _USAGE]
            report.restype = type("Usage", (ctypes.Structure,), {"_fields_": fields})
            return report
    return None


def unused_of(size: int) -> int:
    """Return the part of `size` bytes of this process that the C library has not allocated.

    Memory that is not the C library's, such as Python's small objects, is counted as well, so only
    a growth has a meaning. 0 without glibc.
    """
    report = _usage_report()
    if report is None:
        return 0
    usage = report()
    unused: int = size - usage.uordblks - usage.hblkhd
    half = 1 << 8 * ctypes.sizeof(usage) // len(_USAGE) - 1
    return (unused + half) % (2 * half) - half


def unused_bytes() -> int:
    """Return the unused part of this process's private memory."""
    with open("/proc/self/statm", "rb") as sizes:
        _, resident, shared, *_ = map(int, sizes.read().split())
    return unused_of((resident - shared) * resource.getpagesize())


class UnusedMemory:
    """Gives freed memory back to the kernel if nothing needs it for now.

    Measures the memory, since not all of it is known beforehand: libzmq frees messages in its own
    thread, and documents take many times their size while they are read.
    """

    def __init__(
        self,
        measure: Callable[[], int] = unused_bytes,
        give_back: Callable[[int], None] = give_back_memory,
        kept: int = _KEPT_BYTES,
    ) -> None:
        """Set up; `kept` bytes are worth keeping."""
        self._measure = measure
        self._give_back = partial(give_back, kept)
        #: Unused bytes that are left alone: those of the interpreter, and those that are worth
        #: keeping.
        self._least = measure() + kept
        #: Unused bytes that could not be given back the last time; fewer if some were used since.
        self._left = 0
        #: Unused bytes that were kept, times the seconds of their disuse.
        self._waste = 0

    def check(self) -> None:
        """Give back much at once, and little after a while. Call this once a second."""
        unused = self._measure()
        self._waste = max(0, self._waste + unused - max(self._least, self._left))
        if self._waste > _MAX_WASTE:
            self._give_back()
            self._left = unused = self._measure()
            self._waste = 0
        self._left = min(self._left, unused)
