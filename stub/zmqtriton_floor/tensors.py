"""Converts tensors between numpy arrays and the bytes of messages.

BYTES elements travel as a little-endian 4-byte length and the bytes.
"""

from __future__ import annotations

import struct
from typing import Any, Sequence

import numpy as np

from zmqtriton_floor.datatypes import BY_NUMBER, BYTES, DATATYPES, Datatype, count_elements
from zmqtriton_floor.documents import STEP

_LENGTH = struct.Struct("<I")
#: Below this size a copy is cheaper than a view.
_VIEW_BYTES = 4096

_NUMPY: dict[int, Any] = {d.number: d.numpy and np.dtype(d.numpy) for d in DATATYPES}
#: The numbers of datatypes by numpy's, but for strings of some length, which are BYTES as well.
NUMBERS: dict[Any, int] = {np.dtype(d.numpy): d.number for d in DATATYPES if d.numpy is not None}


def datatype_of(array: Any) -> Datatype:
    """Return the datatype of a numpy array. Raises KeyError for a dtype without one."""
    return BY_NUMBER[BYTES if array.dtype.kind == "S" else NUMBERS[array.dtype]]


def address_of(array: Any) -> int:
    """Return the address of a numpy array's first byte."""
    address: int = array.__array_interface__["data"][0]
    return address


def encode_bytes(elements: Any) -> bytes:
    """Encode the elements of an object or S array in C order.

    Elements that are not bytes are encoded as UTF-8 of str().
    """
    return encode_elements(np.ravel(elements, order="C"))


def encode_elements(elements: Any) -> bytes:
    """Encode a list or an array of elements, as encode_bytes() does."""
    steps = []
    for at in range(0, len(elements), STEP):  # to join very many pieces takes a second
        pieces = []
        step = elements[at : at + STEP]
        for element in step if type(step) is list else step.tolist():
            data = element if type(element) is bytes else str(element).encode()
            pieces.append(_LENGTH.pack(len(data)))
            pieces.append(data)
        steps.append(b"".join(pieces))
    return b"".join(steps)


def decode_bytes(data: bytes | memoryview) -> list[bytes]:
    """Return the elements of a BYTES tensor. Raises ValueError if a length does not fit."""
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


def to_numpy(datatype: int, shape: Sequence[int], data: bytes | memoryview) -> Any:
    """Return a writable array over a writable view, or else over memory of its own.

    Sizes must have been checked. A datatype that numpy lacks raises KeyError.
    """
    if datatype == BYTES:
        array = np.empty(count_elements(shape), dtype=np.object_)
        elements = decode_bytes(data)
        for at in range(0, len(elements), STEP):  # other threads run between them
            array[at : at + STEP] = elements[at : at + STEP]
        return array.reshape(shape)
    kind = _NUMPY[datatype]
    if kind is None:
        raise KeyError(datatype)
    if type(data) is memoryview and not data.readonly:
        array = np.frombuffer(data, dtype=kind)
        return (array if array.flags.aligned else array.copy()).reshape(shape)
    return np.frombuffer(bytearray(data), dtype=kind).reshape(shape)


def from_numpy(array: Any) -> bytes | memoryview:
    """Return the bytes of a tensor as they travel; those of a large array are not copied."""
    if array.dtype.kind in "OS":
        return encode_bytes(array)
    if array.nbytes < _VIEW_BYTES:
        return bytes(array.tobytes())
    flat: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return memoryview(flat)
