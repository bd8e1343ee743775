"""A piece of GPU memory, and the object that keeps it alive."""

from __future__ import annotations

from typing import Any


class Span:
    """Bytes on a GPU, which stay there as long as their keeper lives."""

    __slots__ = ("__weakref__", "address", "gpu", "keeper", "size")

    def __init__(self, gpu: int, address: int, size: int, keeper: Any) -> None:
        self.gpu = gpu
        self.address = address
        self.size = size
        self.keeper = keeper

    def __len__(self) -> int:
        return self.size
