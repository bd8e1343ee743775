"""Values that records of requests have in common: bytes of tensors, and times."""

from __future__ import annotations

import time
from collections.abc import Iterable

from zmqtriton_floor.wire import Tensor


def size_of(tensors: Iterable[Tensor]) -> int:
    """Return how many bytes the tensors have here, without those in clients' memory."""
    return sum(len(memoryview(t.data).cast("B")) for t in tensors if t.data is not None)


def timestamp(seconds: float) -> str:
    """Return a time of the wall clock as records have it."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1_000_000):06}Z"
