"""A piece of GPU memory, perhaps with an object that keeps it alive; the GPUs visible here."""

from __future__ import annotations

from typing import Any, Optional

from zmqtriton_floor.errors import Unavailable

#: The server's number of the only GPU that is visible here, which CUDA calls 0; None: all are.
only_gpu: Optional[int] = None


def number_here(number: int) -> int:
    """Return CUDA's number of a GPU in this process. Raises Unavailable if it is not visible."""
    if only_gpu not in (None, number):
        raise Unavailable(
            f"memory on GPU {number} is not visible: the instance has GPU {only_gpu} only"
        )
    return number if only_gpu is None else 0


class DeviceSpan:
    """Bytes on a GPU, which stay there as long as this object and its keeper live."""

    __slots__ = ("__weakref__", "address", "gpu", "keeper", "size")

    def __init__(self, gpu: int, address: int, size: int, keeper: Any = None) -> None:
        self.gpu = gpu
        self.address = address
        self.size = size
        self.keeper = keeper

    def __len__(self) -> int:
        return self.size
