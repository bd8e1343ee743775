"""Tensors as DLPack capsules and back, without a copy, in Python alone; for tensor.py.

Capsules are made by numpy and renamed to their true datatype: the library that takes one may delete
it amid an exception or at exit, where functions of C may run and ours may not. A numpy older than
1.22 makes none; then a capsule owns a copy. Capsules of others are read here, since numpy refuses
bfloat16. The driver of gpu.py handles tensors on GPUs.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Any, List, NamedTuple, Sequence

import numpy as np

from zmqtriton_floor.datatypes import (
    BY_NAME,
    BY_NUMBER,
    DATATYPES,
    WITHOUT_NUMPY,
    count_elements,
)
from zmqtriton_floor.errors import Unavailable
from zmqtriton_floor.tensors import datatype_of
from zmqtriton_stub.api.errors import TritonModelException
from zmqtriton_stub.memory import gpu

CPU = 1
GPU = 2
CUDA_HOST = 3
#: GPU memory: CUDA's own, and its unified memory.
_ON_GPU = (GPU, 13)

_UNSUPPORTED = (
    "Provided tensor is not supported. Tensor must be a DLPack capsule         or have "
    "`__dlpack__` and `__dlpack_device__` attributes"
)

_READ_ONLY = 1
_BOOL = BY_NAME["BOOL"].number
#: The types of numpy that datatypes are given as which DLPack or old numpys do not call so.
_MASKS: dict[int, Any] = {number: BY_NUMBER[number].numpy_bits for number in WITHOUT_NUMPY}
_MASKS[_BOOL] = np.uint8
#: Our number and the dtype of the array, by the code and the bits of DLPack's datatype.
_DATATYPES: dict[tuple[int, int], tuple[int, Any]] = {
    (d.dlpack_code, d.size * 8): (d.number, np.dtype(d.numpy_bits))
    for d in DATATYPES
    if d.dlpack_code >= 0
}


class _Datatype(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("datatype", _Datatype),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    """The struct that a capsule points to."""

    _fields_ = (
        ("tensor", _Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class _Versioned(ctypes.Structure):
    """The struct that a capsule points to since DLPack 1.0."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


class _Kind(NamedTuple):
    """One of the two forms of capsules."""

    name: bytes
    used_name: Any
    structure: Any


def _forever(text: bytes) -> Any:
    """Return a name for capsules that stays valid when this module is gone."""
    buffer = ctypes.create_string_buffer(text)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(buffer))
    return buffer


_KINDS = (
    _Kind(b"dltensor", _forever(b"used_dltensor"), _Managed),
    _Kind(b"dltensor_versioned", _forever(b"used_dltensor_versioned"), _Versioned),
)
_NAME = _forever(b"dltensor")

_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _function(name: str, result: Any, *arguments: Any) -> Any:
    # not pythonapi.name: others in this process may declare that differently
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_is_valid = _function("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_pointer = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_rename = _function("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_void_p)
_new = _function(
    "PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)


class Taken(NamedTuple):
    """The content of a capsule: a DeviceSpan on a GPU, or an array, perhaps of bits.

    An array has bits if numpy lacks the datatype.
    """

    datatype: int
    array: Any
    shape: List[int]


class _Owner:
    """Memory of another library, described for numpy, and its owner.

    numpy keeps this object as long as an array is over the memory.
    """

    def __init__(self, managed: Any) -> None:
        self._address = ctypes.addressof(managed)
        # Looked up now: at exit nothing may be left to look it up.
        self._delete = _DELETER(managed.deleter) if managed.deleter else None
        self.__array_interface__: dict[str, Any] = {}

    def __del__(self) -> None:
        if self._delete is not None:
            self._delete(self._address)


def take(source: Any) -> Taken:
    """Take the tensor of a capsule, or of an object that makes one.

    Raises TritonModelException if the tensor cannot be taken.
    """
    if type(source).__name__ != "PyCapsule":
        if not (hasattr(source, "__dlpack__") and hasattr(source, "__dlpack_device__")):
            raise TritonModelException(_UNSUPPORTED)
        device, number = map(int, source.__dlpack_device__())
        _check_device(device)
        source = _driver().ask(source, number) if device in _ON_GPU else _ask(source)
    elif _tensor_of(source).device_type in _ON_GPU:
        # whoever has made it is not here to be asked what is still being written
        _driver().settle(_tensor_of(source).device_id)
    kind = _kind_of(source)
    managed = kind.structure.from_address(_pointer(source, kind.name))
    tensor = managed.tensor
    _check_device(tensor.device_type)
    shape = tensor.shape[: tensor.ndim] if tensor.ndim else []
    _check_order(shape, tensor.strides[: tensor.ndim] if tensor.strides else None)
    datatype, dtype = _datatype(tensor.datatype)
    # from here on it is ours to delete
    _rename(source, ctypes.addressof(kind.used_name))
    owner = _Owner(managed)
    if not count_elements(shape):
        return Taken(datatype, np.empty(shape, dtype), shape)
    address = (tensor.data or 0) + tensor.byte_offset
    if tensor.device_type in _ON_GPU:
        size = count_elements(shape) * dtype.itemsize
        return Taken(datatype, gpu.DeviceSpan(tensor.device_id, address, size, owner), shape)
    is_read_only = kind.structure is _Versioned and bool(managed.flags & _READ_ONLY)
    owner.__array_interface__ = {
        "version": 3,
        "typestr": dtype.str,
        "shape": tuple(shape),
        "data": (address, is_read_only),
    }
    return Taken(datatype, np.asarray(owner), shape)


def _tensor_of(capsule: Any) -> Any:
    kind = _kind_of(capsule)
    return kind.structure.from_address(_pointer(capsule, kind.name)).tensor


def _driver() -> Any:
    try:
        return gpu.driver()
    except Unavailable as error:
        raise TritonModelException(
            "DLPack tensor is stored in GPU, which this model instance has no access to "
            f"({error.text}). Copy it to the CPU first."
        ) from None


def _ask(source: Any) -> Any:
    try:
        return source.__dlpack__()
    except BufferError:
        # only the newer form can say that it must not be written to
        with suppress(TypeError):
            return source.__dlpack__(max_version=(1, 0))
        raise


def _kind_of(capsule: Any) -> _Kind:
    if type(capsule).__name__ != "PyCapsule":
        raise TritonModelException(_UNSUPPORTED)
    for kind in _KINDS:
        if _is_valid(capsule, kind.name):
            return kind
    raise TritonModelException(
        "Provided tensor is not supported. The DLPack capsule has been used already, or holds "
        "something else."
    )


def _check_device(device_type: int) -> None:
    if device_type not in (CPU, CUDA_HOST, *_ON_GPU):
        raise TritonModelException(f"DLDevice type {device_type} is not support by Python backend.")


def _check_order(shape: Sequence[int], strides: Sequence[int] | None) -> None:
    """Raise an error for strides that do not mean C order; only those with a next element count."""
    if strides is None or 0 in shape:
        return
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1 and stride != expected:
            raise TritonModelException(
                "DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored "
                "in C-Order are supported."
            )
        expected *= size


def _datatype(datatype: _Datatype) -> tuple[int, Any]:
    """Return our datatype and the dtype of the array."""
    entry = _DATATYPES.get((datatype.code, datatype.bits))
    if entry is None or datatype.lanes != 1:
        raise TritonModelException(
            f"DLPack data type is not supported (code {datatype.code}, {datatype.bits} bits, "
            f"{datatype.lanes} lanes)."
        )
    return entry


class _KeptArray(np.ndarray):
    """A view of an array, and an object that lives as long as the view."""

    keeper: Any = None


def give(array: Any, datatype: int, max_version: Any = None, *, keeper: Any = None) -> Any:
    """Return a capsule over a writeable array, which it keeps alive, as it does the keeper."""
    if datatype == _BOOL:
        array = array.view(np.uint8)  # old numpys have no word for it
    if hasattr(array, "__dlpack__"):
        if keeper is not None:
            array = array.view(_KeptArray)
            array.keeper = keeper
        capsule = _give_shared(array, max_version)
    else:
        capsule = _give_copy(array)
    return _unmasked(capsule, datatype)


def give_span(
    span: gpu.DeviceSpan,
    datatype: int,
    shape: Sequence[int],
    max_version: Any = None,
    *,
    keeper: Any = None,
) -> Any:
    """Return a capsule over GPU memory, which it keeps alive, as it does the keeper."""
    if keeper is not None:
        span = gpu.DeviceSpan(span.gpu, span.address, span.size, (span, keeper))
    dtype = np.dtype(_MASKS.get(datatype) or BY_NUMBER[datatype].numpy)
    return _unmasked(_driver().give(span, dtype, tuple(shape), max_version), datatype)


def _unmasked(capsule: Any, datatype: int) -> Any:
    if datatype in _MASKS:
        _tensor_of(capsule).datatype.code = BY_NUMBER[datatype].dlpack_code
    return capsule


def _give_shared(array: Any, max_version: Any) -> Any:
    if max_version is not None:
        with suppress(TypeError):  # a numpy that knows the older form only, which is always allowed
            return array.__dlpack__(max_version=max_version)
    return array.__dlpack__()


def _give_copy(array: Any) -> Any:
    """Return a capsule with a copy in a single block of C's memory, which C's free() can delete.

    A capsule that no library takes is never freed.
    """
    malloc = _c_function("malloc", ctypes.c_void_p, ctypes.c_size_t)
    head = ctypes.sizeof(_Managed) + array.ndim * ctypes.sizeof(ctypes.c_int64)
    head += -head % 64
    address = malloc(head + array.nbytes)
    if not address:
        raise MemoryError
    managed = _Managed.from_address(address)
    shape = address + ctypes.sizeof(_Managed)
    ctypes.memset(address, 0, head)
    (ctypes.c_int64 * array.ndim).from_address(shape)[:] = array.shape
    ctypes.memmove(address + head, array.ctypes.data, array.nbytes)
    tensor = managed.tensor
    tensor.data, tensor.device_type, tensor.ndim = address + head, CPU, array.ndim
    tensor.datatype.code, tensor.datatype.lanes = datatype_of(array).dlpack_code, 1
    tensor.datatype.bits = array.dtype.itemsize * 8
    tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = ctypes.cast(_c_function("free", None, ctypes.c_void_p), ctypes.c_void_p).value
    return _new(address, ctypes.addressof(_NAME), None)


def _c_function(name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(ctypes.CDLL(None), name)
    function.restype, function.argtypes = result, list(arguments)
    return function
