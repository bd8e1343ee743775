"""Common values in records of requests: sizes of tensors, and times."""

from __future__ import annotations

import time
from collections.abc import Iterable

from zmqtriton_floor.wire import Tensor


def size_of(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of the tensors' data in this process, without those in clients' memory."""
    return sum(len(memoryview(t.data).cast("B")) for t in tensors if t.data is not None)


def timestamp(seconds: float) -> str:
    """Return a time of the wall clock as records have it."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1_000_000):06}Z"
