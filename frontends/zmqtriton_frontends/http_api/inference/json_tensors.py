"""The `data` of tensors as JSON lists, to and from the bytes of messages.

Elements are checked against their datatype, and their number against the shape; whether they fit a
model is checked later.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from zmqtriton_floor.datatypes import BY_NAME, BY_NUMBER, BYTES, DATATYPES, Datatype
from zmqtriton_floor.errors import InternalError, InvalidArgument
from zmqtriton_floor.tensors import decode_bytes

_BOOL = BY_NAME["BOOL"].number
_FP32 = BY_NAME["FP32"].number
#: Up to this length a list is faster than an array that orjson has to inspect.
_LIST_UP_TO = 256
#: Codes of the array module, which checks types and ranges in C. It accepts true as 1.
_CODES = {d.number: d.array_code for d in DATATYPES if d.array_code and d.json_kind != "boolean"}
_NUMBERS = frozenset({bool, int, float})
_NUMPY: dict[int, Any] = {d.number: np.dtype(d.numpy) for d in DATATYPES if d.number in _CODES}


def json_to_bytes(name: str, datatype: Datatype, count: int, data: Any) -> bytes:
    """Return the bytes of an input; `count` is the product of its shape. Raises InvalidArgument."""
    number = datatype.number
    if not datatype.json_kind:
        raise InvalidArgument(
            f"receiving {datatype.name} data via JSON is not supported. "
            f"Please use the binary data format for input {name}"
        )
    if type(data) is not list:
        raise InvalidArgument("Unable to parse 'data': attempt to access JSON non-array as array")
    if data and (list in (type(data[0]), type(data[-1])) or len(data) != count):
        data = _flatten(data)
    if len(data) != count:
        raise InvalidArgument(
            "Unable to parse 'data': Shape does not match true shape of 'data' field "
            f"(input '{name}' has {len(data)} elements in 'data' and {count} in 'shape')"
        )
    code = _CODES.get(number)
    if code is None:
        if not set(map(type, data)) <= (
            {bool} if number == _BOOL else {str, bytes}
        ):  # bytes are generate's
            raise _other_kind(name, datatype, "'data'" if number == _BOOL else "JSON bytes array")
        return bytes(data) if number == _BOOL else _strings(data)
    try:
        return array(code, data).tobytes()
    except TypeError:
        raise _other_kind(name, datatype) from None
    except OverflowError:
        is_unsigned = datatype.json_kind == "unsigned-integer"
        # the element that is out of range is not the only one
        if not _NUMBERS.issuperset(map(type, data)) or (is_unsigned and min(data) < 0):
            raise _other_kind(name, datatype) from None
        raise InvalidArgument(
            f"Unable to parse 'data': a number is out of range for {datatype.name} (input '{name}')"
        ) from None


def _other_kind(name: str, datatype: Datatype, where: str = "'data'") -> InvalidArgument:
    kind = datatype.json_kind
    actual = "double" if kind == "number" else kind
    return InvalidArgument(
        f"Unable to parse {where}: attempt to access JSON non-{kind} as {actual} "
        f"(input '{name}' is {datatype.name})"
    )


def _flatten(data: list[Any]) -> list[Any]:
    """Return the elements in row-major order.

    Rows may be ragged: only the number of elements counts.
    """
    while data:
        kinds = set(map(type, data))
        if list not in kinds:
            return data
        if len(kinds) > 1:
            return list(_walk(data))
        data = list(chain.from_iterable(data))
    return data


def _walk(data: list[Any]) -> Iterator[Any]:
    stack = [iter(data)]
    while stack:
        for element in stack[-1]:
            if type(element) is list:
                stack.append(iter(element))
                break
            yield element
        else:
            stack.pop()


def _strings(data: list[Any]) -> bytes:
    pieces: list[bytes] = []
    for element in data:
        encoded = element if type(element) is bytes else element.encode()
        pieces.append(len(encoded).to_bytes(4, "little"))
        pieces.append(encoded)
    return b"".join(pieces)


def json_from_bytes(name: str, number: int, data: bytes) -> Any:
    """Return the flat `data` of an output: a list, or a numpy array if it is long.

    Raises InvalidArgument for what JSON cannot carry, InternalError for malformed BYTES.
    """
    kind = _NUMPY.get(number)
    if kind is None:
        return _other_list(name, number, data)
    elements = np.frombuffer(data, kind)
    if len(elements) <= _LIST_UP_TO:
        return elements.tolist()
    # as 64-bit, so that a long tensor is written with the same digits as a short one
    return elements.astype(np.float64) if number == _FP32 else elements


def _other_list(name: str, number: int, data: bytes) -> list[Any]:
    if number == _BOOL:
        return [byte != 0 for byte in data]
    if number != BYTES:
        raise InvalidArgument(
            f"sending {BY_NUMBER[number].name} data via JSON is not supported. "
            "Please use the binary data format for output"
        )
    try:
        return [element.decode() for element in decode_bytes(data)]
    except UnicodeDecodeError:
        raise InvalidArgument(
            "sending BYTES data that is not UTF-8 via JSON is not supported. "
            "Please use the binary data format for output"
        ) from None
    except ValueError:
        raise InternalError(f"output '{name}' holds malformed BYTES") from None
