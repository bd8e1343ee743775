"""Arrays in the memory that models read: as inputs they need not be copied."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from zmqtriton_floor.arena import Allocation, Arena

_ALIGNMENT = 64


def size_of(shape: Sequence[int], dtype: Any) -> int:
    """Return how many bytes an array needs, with its alignment. Raises TypeError for objects."""
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise TypeError(f"{kind} has no bytes to share")
    return int(math.prod(shape) * kind.itemsize + _ALIGNMENT)


def array_in(arena: Arena, room: Allocation, shape: Sequence[int], dtype: Any) -> Any:
    """Return an array in this room, which is free when nothing refers to the array any more."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    start = -room.reference.offset % _ALIGNMENT
    whole = np.frombuffer(room.view[start : start + size], np.uint8)
    weakref.finalize(whole, arena.leases.end, [room.reference.block])
    return whole.view(kind).reshape(shape)


def view_of(arena: Arena, array: Any) -> memoryview | None:
    """Return the bytes of an array that lies in the arena; None if it lies elsewhere."""
    if not array.flags.c_contiguous:
        return None
    root = array
    while isinstance(root, np.ndarray):
        root = root.base
    for segment in list(arena.segments.values()):
        if isinstance(root, memoryview) and root.obj is segment.memory:
            memory = memoryview(segment.memory)
            begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            start = array.__array_interface__["data"][0] - begin
            return memory[start : start + array.nbytes]
    return None
