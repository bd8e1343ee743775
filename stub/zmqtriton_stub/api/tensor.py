"""The Tensor of models.

A tensor that arrived keeps its bytes and becomes an array at first use; a tensor that a model made
keeps the array and becomes bytes when it is sent. A tensor on a GPU has a span instead of bytes.
"""

from __future__ import annotations

import math
import operator
from contextlib import suppress
from typing import Any, Callable

import numpy as np

from zmqtriton_floor import wire
from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.datatypes import BY_NUMBER, BYTES, WITHOUT_NUMPY
from zmqtriton_floor.errors import Unavailable
from zmqtriton_floor.tensors import NUMBERS, from_numpy, to_numpy
from zmqtriton_floor.wire import make
from zmqtriton_stub.api import dlpack
from zmqtriton_stub.api.errors import TritonModelException, text_of
from zmqtriton_stub.memory import gpu
from zmqtriton_stub.memory.gpu import DeviceSpan

_NO_NAME = "the name of a Tensor is a str"
_NAMELESS = "Tensor name cannot be an empty string."


def _nowhere(size: int) -> Any:
    """Return None: there is no memory that receivers can read."""


_make_bytes: Callable[[int], Any] = _nowhere


def set_memory(make_bytes: Callable[[int], Any]) -> None:
    """Let large outputs be made in the memory that their receivers read.

    The function returns an array of bytes, or None; it raises Unavailable if memory is short.
    """
    global _make_bytes
    _make_bytes = make_bytes


class Tensor:
    """A named tensor; its data are in the memory of the CPU, or of a GPU."""

    __slots__ = ("__weakref__", "_array", "_data", "_datatype", "_name", "_shape")

    def __init__(self, name: str, array: Any) -> None:
        if type(name) is not str:
            name = text_of(name, _NO_NAME)
        if not isinstance(array, np.ndarray):
            raise TypeError(f"Tensor() takes a name and a NumPy array, got {type(array)}")
        if not name:  # after the types of both, as in Triton
            raise TritonModelException(_NAMELESS)
        self._name = name
        try:
            self._datatype = BYTES if array.dtype.kind == "S" else NUMBERS[array.dtype]
        except KeyError:
            raise TritonModelException("NumPy dtype is not supported.") from None
        self._array: Any = array if array.flags.c_contiguous else np.ascontiguousarray(array)
        self._shape: list[int] = list(array.shape)
        #: Bytes, a view of shared memory, or a DeviceSpan of GPU memory; None if only the array has
        #: the data.
        self._data: Any = None

    def name(self) -> str:
        """Return the tensor's name."""
        return self._name

    def shape(self) -> list[int]:
        """Return the sizes of the tensor's dimensions, including the batch."""
        return self._shape.copy()

    def triton_dtype(self) -> int:
        """Return Triton's number for the tensor's datatype."""
        return self._datatype

    def is_cpu(self) -> bool:
        """Return whether the tensor's data are in the memory of the CPU."""
        return type(self._data) is not DeviceSpan

    def as_numpy(self) -> Any:
        """Return the array, the same at each call; the model may write into it."""
        source = self._data  # before the array, by which another thread may just replace it
        array = self._array
        if array is None:
            if type(source) is DeviceSpan:
                raise TritonModelException(
                    "Tensor is stored in GPU and cannot be converted to NumPy."
                )
            if self._datatype in WITHOUT_NUMPY:
                raise TritonModelException(
                    f"Tensor dtype is {BY_NUMBER[self._datatype].name} and cannot be converted to "
                    "NumPy. Use to_dlpack() and from_dlpack() instead."
                )
            data: Any = b"" if source is None else source
            array = self._array = to_numpy(self._datatype, self._shape, data)
            self._data = None
        return array

    @staticmethod
    def empty(name: str, shape: Any, dtype: Any) -> Tensor:
        """Return a tensor whose array you fill; a large one is sent without a copy.

        It is for one response: afterwards its receiver reads it, and the model must not write to
        it. Not in Triton's API.
        """
        kind = np.dtype(dtype)
        dims = tuple(map(operator.index, shape))
        if min(dims, default=0) < 0:
            raise ValueError("negative dimensions are not allowed")
        return Tensor(name, _make_array(dims, kind))

    @staticmethod
    def from_dlpack(name: str, tensor: Any) -> Tensor:
        """Return a tensor that shares the memory of a DLPack capsule or its producer."""
        name = text_of(name, _NO_NAME)
        if not name:
            raise TritonModelException(_NAMELESS)
        taken = dlpack.take(tensor)
        if type(taken.array) is DeviceSpan:
            return received_tensor(wire.Tensor(name, taken.datatype, taken.shape, taken.array))
        if taken.datatype not in WITHOUT_NUMPY:
            return Tensor(name, taken.array)
        flat: Any = taken.array.reshape(-1).view(np.uint8)
        return received_tensor(
            wire.Tensor(name, taken.datatype, list(taken.array.shape), memoryview(flat))
        )

    def to_dlpack(self) -> Any:
        """Return a capsule that shares the tensor's memory, or a copy if that is read-only."""
        return self.__dlpack__()

    def __dlpack__(
        self,
        stream: Any = None,
        *,
        max_version: Any = None,
        dl_device: Any = None,
        copy: Any = None,
    ) -> Any:
        if self._datatype == BYTES:
            raise TritonModelException("DLPack does not have support for string tensors.")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError("A Tensor gives its memory where it is: leave dl_device out.")
        if type(self._data) is DeviceSpan:
            # all that was written there is complete, so no stream has to wait
            span = gpu.copied(self._data, self._data.gpu) if copy else self._data
            return dlpack.give_span(
                span, self._datatype, self._shape, max_version, keeper=None if copy else self
            )
        array = self._bits() if self._datatype in WITHOUT_NUMPY else self.as_numpy()
        if copy:
            array = array.copy()
        elif not array.flags.writeable:  # most consumers could not know
            array = self._array = array.copy()
        # who counts the references to a Tensor finds that of its capsule, as in Triton
        return dlpack.give(array, self._datatype, max_version, keeper=None if copy else self)

    def __dlpack_device__(self) -> tuple[int, int]:
        data = self._data
        return (dlpack.GPU, data.gpu) if type(data) is DeviceSpan else (dlpack.CPU, 0)

    def _bits(self) -> Any:
        """Return data of a type that numpy lacks as an array of numbers of the same size."""
        data = self._data
        if type(data) is not memoryview or data.readonly:
            data = self._data = memoryview(bytearray(data))
        return np.frombuffer(data, BY_NUMBER[self._datatype].numpy_bits).reshape(self._shape)


def _make_array(dims: tuple[int, ...], kind: Any) -> Any:
    size = math.prod(dims) * kind.itemsize
    if size > INLINE_BYTES and not kind.hasobject:
        with suppress(Unavailable):  # memory is short: it will be again when this is sent, or not
            memory = _make_bytes(size)
            if memory is not None:
                return memory.view(kind).reshape(dims)
    return np.empty(dims, kind)


def received_tensor(row: wire.Tensor, _new: Any = Tensor.__new__) -> Tensor:
    """Return the tensor that arrived; Tensor() itself is for models."""
    tensor: Tensor = _new(Tensor)
    tensor._name, tensor._datatype, tensor._shape, tensor._data = row
    tensor._array = None
    return tensor


def packed(tensor: Tensor) -> wire.Tensor:
    """Return the tensor as a row of a message."""
    data = tensor._data
    if data is None:
        array = tensor._array
        data = from_numpy(array)
    return make(wire.Tensor, (tensor._name, tensor._datatype, tensor._shape, data))
