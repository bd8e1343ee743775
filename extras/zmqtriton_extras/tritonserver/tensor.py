"""Tensor: datatype, shape and memory; converted from and to arrays, lists and DLPack.

Host memory is accessed by numpy, GPU memory by the driver that models use. Outputs of models are in
read-only memory: consumers of an older DLPack, which cannot know that, get a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zmqtriton.sdk.models import api, dlpack, gpu
from zmqtriton.sdk.wire import Unavailable, datatypes, tensors
from zmqtriton_extras.tritonserver.enums import (
    DataType,
    DLDeviceType,
    InvalidArgumentError,
    MemoryType,
    UnsupportedError,
)

_ON_HOST = (MemoryType.CPU, MemoryType.CPU_PINNED)
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
    """Memory at an address, valid as long as its owner lives."""

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
    except (api.TritonModelException, BufferError, TypeError) as error:
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


@dataclass
class Tensor:
    data_type: DataType
    shape: Sequence[int]
    memory_buffer: MemoryBuffer

    @property
    def data_ptr(self) -> int:
        return self.memory_buffer.data_ptr

    @property
    def memory_type(self) -> MemoryType:
        return self.memory_buffer.memory_type

    @property
    def memory_type_id(self) -> int:
        return self.memory_buffer.memory_type_id

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self.memory_buffer.size

    # ------------------------------------------------------------ made of others

    @staticmethod
    def from_dlpack(obj: Any) -> Tensor:
        """Make a tensor over the memory of an object with `__dlpack__`."""
        return Tensor(*describe(obj))

    @staticmethod
    def from_string_array(string_array: list[Any] | np.ndarray) -> Tensor:
        """Make a BYTES tensor of texts."""
        return Tensor.from_bytes_array(string_array)

    @staticmethod
    def from_bytes_array(bytes_array: list[Any] | np.ndarray) -> Tensor:
        """Make a BYTES tensor from texts or bytes. Raises InvalidArgumentError for others."""
        tensor = Tensor.from_object(bytes_array)
        if tensor.data_type is not DataType.BYTES:
            raise InvalidArgumentError(
                f"Unsupported conversion from {bytes_array} to Triton BYTES Tensor. Got "
                f"{tensor.data_type}"
            )
        return tensor

    @staticmethod
    def from_object(obj: Any) -> Tensor:
        """Make a tensor of an array, a list, or an object with `__dlpack__`.

        Numbers in a list have numpy's types. Raises InvalidArgumentError for other objects.
        """
        if isinstance(obj, Tensor):
            return obj
        if isinstance(obj, list):
            try:
                return _of_array(np.array(obj))
            except (ValueError, InvalidArgumentError) as error:
                raise InvalidArgumentError(
                    f"Conversion from {obj} to tensor not supported."
                ) from error
        if isinstance(obj, np.ndarray | np.generic):
            return _of_array(np.asarray(obj))
        if hasattr(obj, "__dlpack__"):
            return Tensor.from_dlpack(obj)
        raise InvalidArgumentError(
            f"Input type {type(obj)} not supported. Must be a numpy array, a list, or support "
            "__dlpack__"
        )

    # ---------------------------------------------------------- given to others

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a capsule over the memory, or a copy if the consumer needs writable memory."""
        number = self.data_type.value
        if number == datatypes.BYTES or number not in datatypes.BY_NUMBER:
            raise InvalidArgumentError(
                f"Unsupported Triton server data type. Can't convert {self.data_type} to DLPack "
                "data type"
            )
        if self.memory_type is MemoryType.GPU:
            return self._capsule_on_gpu(number, max_version, is_copy=bool(copy))
        if stream not in (None, 0):
            raise UnsupportedError(
                f"DLPack stream synchronization on memory type {self.memory_type} and stream "
                f"{stream} not supported"
            )
        array = self._on_host(datatypes.BY_NUMBER[number].numpy_bits, self.shape)
        try:
            return dlpack.give(array.copy() if copy else array, number, max_version)
        except BufferError:  # it cannot be told that the memory must not be written to
            return dlpack.give(array.copy(), number, max_version)

    def __dlpack_device__(self) -> tuple[DLDeviceType, int]:
        return DEVICE_OF[self.memory_type], self.memory_type_id

    def to_bytes_array(self) -> np.ndarray:
        """Return the elements of a BYTES tensor, on any device."""
        if self.data_type is not DataType.BYTES:
            raise InvalidArgumentError(
                f"Tensor has data type {self.data_type} not {DataType.BYTES}"
            )
        array: np.ndarray = tensors.to_numpy(datatypes.BYTES, list(self.shape), self.to_memory())
        return array

    def to_string_array(self) -> np.ndarray:
        """Return the elements of a BYTES tensor as texts."""
        elements = self.to_bytes_array()
        texts = [element.decode() for element in elements.ravel()]
        return np.array(texts, np.str_).reshape(elements.shape)

    def to_host(self) -> Tensor:
        """Return the tensor in host memory: itself, if it is there."""
        return self.to_device("cpu")

    def to_device(self, device: DeviceOrMemoryType) -> Tensor:
        """Return the tensor on a device: itself, or a copy (which needs cupy)."""
        place = parse_place(device)
        if place == (self.memory_type, self.memory_type_id):
            return self
        kind, number = place
        if kind is MemoryType.CPU and self.memory_type in _ON_HOST:
            return self
        if kind is MemoryType.CPU_PINNED:
            raise self._refusal(place)
        try:
            return Tensor(self.data_type, self.shape, self._moved_to(kind, number))
        except Unavailable:
            raise self._refusal(place) from None

    def _moved_to(self, kind: MemoryType, number: int) -> MemoryBuffer:
        """Return a copy of the bytes: from host to GPU, from GPU to host or another GPU."""
        gpu.driver()
        if not self.size:  # which cannot be allocated
            return MemoryBuffer(0, kind, number, 0, None)
        if kind is MemoryType.CPU:
            return over(np.frombuffer(gpu.downloaded(self._span()), np.uint8))
        if self.memory_type in _ON_HOST:
            span = gpu.uploaded(number, self._bytes_on_host())
        else:
            span = gpu.copied(self._span(), number)
        return MemoryBuffer(span.address, kind, number, span.size, span)

    def to_memory(self) -> memoryview:
        """Return the bytes, in memory of the host."""
        return memoryview(self.to_host()._bytes_on_host())

    def _bytes_on_host(self) -> Any:
        return self._on_host(np.uint8, (self.size,))

    def _span(self) -> gpu.DeviceSpan:
        return gpu.DeviceSpan(self.memory_type_id, self.data_ptr, self.size, self)

    def _capsule_on_gpu(self, number: int, max_version: Any, *, is_copy: bool) -> Any:
        # what is there is complete, so that no stream has to wait
        try:
            span = gpu.copied(self._span(), self.memory_type_id) if is_copy else self._span()
            return dlpack.give_span(span, number, self.shape, max_version)
        except (api.TritonModelException, Unavailable) as error:
            raise UnsupportedError(str(error)) from None

    def _refusal(self, place: tuple[MemoryType, int]) -> UnsupportedError:
        return UnsupportedError(
            f"Conversion from {(self.memory_type, self.memory_type_id)} to {place} not supported."
        )

    def _on_host(self, dtype: Any, shape: Sequence[int]) -> Any:
        """Return an array over the host memory, which keeps the tensor alive."""
        sizes = tuple(int(size) for size in shape)
        return np.asarray(_Memory(self, sizes, dtype)) if self.size else np.empty(sizes, dtype)


class _Memory:
    """The memory of a tensor, described for numpy. An array over it keeps the tensor alive."""

    def __init__(self, tensor: Tensor, shape: tuple[int, ...], dtype: Any) -> None:
        self._tensor = tensor
        owner = tensor.memory_buffer.owner
        is_read_only = isinstance(owner, np.ndarray) and not owner.flags.writeable
        self.__array_interface__ = {
            "version": 3,
            "typestr": np.dtype(dtype).str,
            "shape": shape,
            "data": (tensor.data_ptr, is_read_only),
        }


def _of_array(array: Any) -> Tensor:
    """Return a tensor over an array in C order, or over a copy in C order."""
    if array.dtype.kind in "OSU":
        elements = array.astype(np.object_) if array.dtype.kind == "U" else array
        return Tensor(
            DataType.BYTES,
            array.shape,
            over(np.frombuffer(tensors.from_numpy(elements), np.byte)),
        )
    try:
        number = tensors.datatype_of(array).number
    except KeyError:
        raise InvalidArgumentError(
            f"Unsupported Numpy data type. Can't convert {array.dtype.type} to Triton server data "
            "type"
        ) from None
    return Tensor(DataType(number), array.shape, over(np.asarray(array, order="C")))
