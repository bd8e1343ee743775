"""Fields of protobuf messages whose descriptions nobody has here: those of other formats' files."""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT = 10


def fields(data: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Return the number and the value of each field; bytes are not copied.

    Raises ValueError if it is no message, or not all of one.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        value: memoryview | int
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"byte {at} begins no field")
        if not number or at + size > len(data):
            raise ValueError(f"it ends within a field, after {len(data)} bytes")
        yield number, data[at : at + size]
        at += size


def messages(data: memoryview, number: int) -> Iterator[memoryview]:
    """Return the messages, strings or bytes of one field. Raises ValueError."""
    for key, value in fields(data):
        if key == number and isinstance(value, memoryview):
            yield value


def text(data: memoryview, number: int) -> str:
    """Return the string of a field, or "". Raises ValueError."""
    return next((bytes(one).decode("utf-8") for one in messages(data, number)), "")


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(data[at : at + _MAX_VARINT]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError(f"byte {at} begins no number")
