"""The memory of tensors: where it lies, how large it is, and the object that keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from zmqtriton_addons.tritonserver.enums import DataType, DLDeviceType, MemoryType
from zmqtriton_addons.tritonserver.errors import InvalidArgumentError
from zmqtriton_stub.api import TritonModelException, dlpack

DeviceOrMemoryType = tuple[MemoryType, int] | MemoryType | tuple[DLDeviceType, int] | str

_OF_DEVICE = {DLDeviceType.kDLCPU: MemoryType.CPU, DLDeviceType.kDLCUDA: MemoryType.GPU}
#: The device of DLPack that has this memory.
DEVICE_OF = {
    MemoryType.CPU: DLDeviceType.kDLCPU,
    MemoryType.CPU_PINNED: DLDeviceType.kDLCPU,
    MemoryType.GPU: DLDeviceType.kDLCUDA,
}


@dataclass
class MemoryBuffer:
    """Memory at an address, valid for as long as its owner lives."""

    data_ptr: int
    memory_type: MemoryType
    memory_type_id: int
    size: int
    owner: Any

    @staticmethod
    def from_dlpack(owner: Any) -> MemoryBuffer:
        """Return the memory of an object with `__dlpack__`. Raises InvalidArgumentError."""
        return describe(owner)[2]


def describe(owner: Any) -> tuple[DataType, list[int], MemoryBuffer]:
    """Return datatype, shape and memory of an object with `__dlpack__`."""
    if not hasattr(owner, "__dlpack__"):
        raise InvalidArgumentError("Object does not support DLpack protocol")
    try:
        number, array, shape = dlpack.take(owner)
    except (TritonModelException, BufferError, TypeError) as error:
        raise InvalidArgumentError(f"Object does not support DLPack protocol: {error}") from None
    if isinstance(array, np.ndarray):
        buffer = over(array, owner)
    else:
        buffer = MemoryBuffer(array.address, MemoryType.GPU, array.gpu, array.size, owner)
    return DataType(number), shape, buffer


def over(array: Any, owner: Any = None) -> MemoryBuffer:
    """Return the memory of a numpy array in C order, which another object may own."""
    address = array.__array_interface__["data"][0]
    return MemoryBuffer(address, MemoryType.CPU, 0, array.nbytes, array if owner is None else owner)


def parse_place(place: DeviceOrMemoryType) -> tuple[MemoryType, int]:
    """Return the memory type and the number of its device. Raises InvalidArgumentError."""
    if isinstance(place, MemoryType):
        return place, 0
    if isinstance(place, tuple) and len(place) == 2:
        kind, number = place
        if isinstance(kind, MemoryType):
            return kind, number
        if kind in _OF_DEVICE:
            return _OF_DEVICE[DLDeviceType(kind)], number
    elif isinstance(place, str):
        name, _, digits = place.partition(":")
        if name.upper() in MemoryType.__members__ and (digits.isdecimal() or ":" not in place):
            return MemoryType[name.upper()], int(digits or 0)
    raise InvalidArgumentError(f"Invalid memory type {place!r}")
