"""Tensors on GPUs, by cupy; imported where one is met, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy

from zmqtriton_addons.tritonserver.memory import MemoryBuffer


def array_over(buffer: MemoryBuffer, shape: Sequence[int], dtype: Any) -> Any:
    """Return a cupy array over memory of a GPU, which it keeps."""
    memory = cupy.cuda.UnownedMemory(
        buffer.data_ptr, buffer.size, buffer.owner, buffer.memory_type_id
    )
    with cupy.cuda.Device(buffer.memory_type_id):
        return cupy.ndarray(tuple(shape), dtype, cupy.cuda.MemoryPointer(memory, 0))


def to_gpu(array: Any, number: int) -> Any:
    """Copy an array to this GPU, from the host or another GPU."""
    with cupy.cuda.Device(number):
        return cupy.array(array)


def to_host(array: Any) -> Any:
    """Copy a cupy array to the host."""
    return cupy.asnumpy(array)
