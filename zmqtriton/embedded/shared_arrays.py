"""Arrays in the memory that models read: as inputs they need not be copied."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from zmqtriton_floor.arena import Allocation, Arena


def size_of(shape: Sequence[int], dtype: Any) -> int:
    """Return how many bytes an array has. Raises TypeError for objects."""
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise TypeError(f"{kind} has no bytes to share")
    return int(math.prod(shape) * kind.itemsize)


def array_in(arena: Arena, room: Allocation, shape: Sequence[int], dtype: Any) -> Any:
    """Return an array in this room, which is free when nothing refers to the array any more."""
    whole = np.frombuffer(room.view, np.uint8)  # a block begins with a page
    weakref.finalize(whole, arena.leases.end, [room.reference.block])
    return whole.view(dtype).reshape(shape)
