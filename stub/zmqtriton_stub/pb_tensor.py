"""The Tensor of models, on the CPU.

A tensor that arrived keeps its bytes and becomes an array when asked; one that a model made keeps
the array and becomes bytes when sent.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zmqtriton_floor import wire
from zmqtriton_floor.datatypes import BF16, BYTES
from zmqtriton_floor.tensors import datatype_of, encode_bytes, from_numpy, to_numpy
from zmqtriton_stub.pb_errors import TritonModelException

_CPU = 1  # kDLCPU
_PINNED = 3  # kDLCUDAHost


class Tensor:
    """A named tensor; its data are in the memory of the CPU."""

    __slots__ = ("__weakref__", "_array", "_data", "_datatype", "_name", "_shape")

    def __init__(self, name: str, array: Any) -> None:
        if type(name) is not str or not isinstance(array, np.ndarray):
            raise TypeError(
                f"Tensor() takes a name and a NumPy array, got {type(name)} and {type(array)}"
            )
        if not name:
            raise TritonModelException("Tensor name cannot be an empty string.")
        try:
            self._datatype = datatype_of(array).number
        except KeyError:
            raise TritonModelException("NumPy dtype is not supported.") from None
        self._name = name
        self._array: Any = array if array.flags.c_contiguous else np.ascontiguousarray(array)
        self._shape: list[int] = list(array.shape)
        #: bytes, or a view of shared memory.
        self._data: Any = None

    def name(self) -> str:
        return self._name

    def shape(self) -> list[int]:
        return self._shape.copy()

    def triton_dtype(self) -> int:
        return self._datatype

    def is_cpu(self) -> bool:
        return True

    def as_numpy(self) -> Any:
        """The array, the same at each call; the model may write into it."""
        array = self._array
        if array is None:
            if self._datatype == BF16:
                raise TritonModelException(
                    f"Tensor '{self._name}' is of type BF16, which NumPy does not have."
                )
            data: Any = b"" if self._data is None else self._data
            array = self._array = to_numpy(self._datatype, self._shape, data)
            self._data = None
        return array

    @staticmethod
    def from_dlpack(name: str, tensor: Any) -> Tensor:
        """A tensor that shares the memory of a DLPack capsule or of an object that gives one."""
        if name == "":
            raise TritonModelException("Tensor name cannot be an empty string.")
        if type(tensor).__name__ == "PyCapsule":
            tensor = _Capsule(tensor)
        elif not (hasattr(tensor, "__dlpack__") and hasattr(tensor, "__dlpack_device__")):
            raise TritonModelException(
                "Provided tensor is not supported. Tensor must be a DLPack capsule or have "
                "`__dlpack__` and `__dlpack_device__` attributes"
            )
        device = int(tensor.__dlpack_device__()[0])
        if device not in (_CPU, _PINNED):
            raise TritonModelException(f"DLDevice type {device} is not support by Python backend.")
        array = np.from_dlpack(tensor)
        if not array.flags.c_contiguous:
            raise TritonModelException(
                "DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored "
                "in C-Order are supported."
            )
        return Tensor(name, array)

    def to_dlpack(self) -> Any:
        return self.__dlpack__()

    def __dlpack__(self, *, stream: Any = None, **wishes: Any) -> Any:
        if self._datatype == BYTES:
            raise TritonModelException("DLPack does not have support for string tensors.")
        array = self.as_numpy()
        if not array.flags.writeable:  # DLPack could not say so
            array = self._array = array.copy()
        return array.__dlpack__(**{k: v for k, v in wishes.items() if v is not None})

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU, 0


class _Capsule:
    """A bare capsule as the object that numpy wants; numpy refuses one of another device."""

    __slots__ = ("_capsule",)

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **wishes: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU, 0


def received(row: wire.Tensor, _new: Any = Tensor.__new__) -> Tensor:
    """The tensor that arrived; Tensor() itself is for models."""
    tensor: Tensor = _new(Tensor)
    tensor._name, tensor._datatype, tensor._shape, tensor._data = row
    tensor._array = None
    return tensor


def packed(tensor: Tensor) -> wire.Tensor:
    """The tensor as it is sent."""
    data = tensor._data
    if data is None:
        array = tensor._array
        data = encode_bytes(array) if tensor._datatype == BYTES else from_numpy(array)
    return wire.Tensor(tensor._name, tensor._datatype, tensor._shape, data)
