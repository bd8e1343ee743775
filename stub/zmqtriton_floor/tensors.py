"""Datatypes and their names, and the BYTES codec, for every process.

A datatype has four names: the protocol's (FP32), the configuration's (TYPE_FP32), Triton's number
(11) and numpy's. BYTES elements travel as a little-endian 4-byte length and the bytes.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, Sequence

import numpy as np

_LENGTH = struct.Struct("<I")
#: Below this a copy is cheaper than a view.
_VIEW_BYTES = 4096


class Datatype(NamedTuple):
    """One row of the table below."""

    name: str
    config_name: str
    number: int
    #: Bytes of an element; 0 for BYTES.
    size: int
    #: None where numpy has no such type.
    numpy: Any


BYTES = 13
BF16 = 14

DATATYPES: Sequence[Datatype] = (
    Datatype("BOOL", "TYPE_BOOL", 1, 1, np.bool_),
    Datatype("UINT8", "TYPE_UINT8", 2, 1, np.uint8),
    Datatype("UINT16", "TYPE_UINT16", 3, 2, np.uint16),
    Datatype("UINT32", "TYPE_UINT32", 4, 4, np.uint32),
    Datatype("UINT64", "TYPE_UINT64", 5, 8, np.uint64),
    Datatype("INT8", "TYPE_INT8", 6, 1, np.int8),
    Datatype("INT16", "TYPE_INT16", 7, 2, np.int16),
    Datatype("INT32", "TYPE_INT32", 8, 4, np.int32),
    Datatype("INT64", "TYPE_INT64", 9, 8, np.int64),
    Datatype("FP16", "TYPE_FP16", 10, 2, np.float16),
    Datatype("FP32", "TYPE_FP32", 11, 4, np.float32),
    Datatype("FP64", "TYPE_FP64", 12, 8, np.float64),
    Datatype("BYTES", "TYPE_STRING", BYTES, 0, np.object_),
    Datatype("BF16", "TYPE_BF16", BF16, 2, None),
)
BY_NAME: dict[str, Datatype] = {d.name: d for d in DATATYPES}
BY_CONFIG_NAME: dict[str, Datatype] = {d.config_name: d for d in DATATYPES}
BY_NUMBER: dict[int, Datatype] = {d.number: d for d in DATATYPES}
_BY_NUMPY: dict[Any, Datatype] = {np.dtype(d.numpy): d for d in DATATYPES if d.numpy is not None}


def datatype_of(array: Any) -> Datatype:
    """The datatype of a numpy array; KeyError where the protocol has none for its dtype."""
    return BY_NUMBER[BYTES] if array.dtype.kind == "S" else _BY_NUMPY[array.dtype]


def encode_bytes(elements: Any) -> bytes:
    """The elements of an object or S array in C order; what is not bytes goes as str() in UTF-8."""
    pieces = []
    for element in np.ravel(elements, order="C").tolist():
        data = element if type(element) is bytes else str(element).encode()
        pieces.append(_LENGTH.pack(len(data)))
        pieces.append(data)
    return b"".join(pieces)


def decode_bytes(data: bytes | memoryview) -> list[bytes]:
    """The elements; ValueError where a length does not fit."""
    elements = []
    position, end = 0, len(data)
    while position < end:
        start = position + 4
        if start > end:
            raise ValueError("incomplete string length indicator")
        position = start + _LENGTH.unpack_from(data, position)[0]
        if position > end:
            raise ValueError("incomplete string data")
        elements.append(bytes(data[start:position]))
    return elements


def count_elements(shape: Sequence[int]) -> int:
    """The product of the dimensions."""
    count = 1
    for dim in shape:
        count *= dim
    return count


def to_numpy(datatype: int, shape: Sequence[int], data: bytes | memoryview) -> Any:
    """A writable array: over the memory of a writable view, else of its own. Sizes must have been
    checked. BF16 raises KeyError."""
    if datatype == BYTES:
        array = np.empty(count_elements(shape), dtype=np.object_)
        array[:] = decode_bytes(data)
        return array.reshape(shape)
    kind = BY_NUMBER[datatype].numpy
    if kind is None:
        raise KeyError(datatype)
    if type(data) is memoryview and not data.readonly:
        array = np.frombuffer(data, dtype=kind)
        return (array if array.flags.aligned else array.copy()).reshape(shape)
    return np.frombuffer(bytearray(data), dtype=kind).reshape(shape)


def from_numpy(array: Any) -> bytes | memoryview:
    """The bytes of a tensor as they travel; those of a large array are not copied."""
    if array.dtype.kind in "OS":
        return encode_bytes(array)
    if array.nbytes < _VIEW_BYTES:
        return bytes(array.tobytes())
    flat: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return memoryview(flat)
