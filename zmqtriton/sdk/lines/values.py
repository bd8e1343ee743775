"""Common values in records of requests: sizes of tensors, and times."""

from __future__ import annotations

from collections.abc import Iterable

from zmqtriton_floor.logs import timestamp as timestamp
from zmqtriton_floor.wire import Tensor


def size_of(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of the tensors' data in this process, without those in clients' memory."""
    return sum(len(memoryview(t.data).cast("B")) for t in tensors if t.data is not None)
