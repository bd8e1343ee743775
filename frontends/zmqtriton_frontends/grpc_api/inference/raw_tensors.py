"""Finds the raw tensors of a large inference request without copying them.

protobuf copies them twice on the way to Python, which for megabytes is most of the work. Checks
nothing: what it doesn't understand is left to protobuf.
"""

from __future__ import annotations

#: Below this size protobuf is faster.
MIN_BYTES = 16 * 1024
#: Requests with more top-level fields are left to protobuf, which is fast at those.
_MAX_FIELDS = 256

#: ModelInferRequest.raw_input_contents: field 7, length and bytes.
_RAW = 7 << 3 | 2
#: Tags up to this one, those of the first fields, are a byte.
_ONE_BYTE = 127
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def split_raw(data: bytes) -> tuple[bytes, list[memoryview]] | None:
    """Split off raw_input_contents; None if protobuf must parse all of the message."""
    view, end = memoryview(data), len(data)
    rest: list[memoryview] = []
    raw: list[memoryview] = []
    position = 0
    for _ in range(_MAX_FIELDS):
        if position == end:
            return b"".join(rest), raw
        start = position
        tag, position = data[position], position + 1
        if tag > _ONE_BYTE:
            tag, position = varint_at(data, start)
        kind = tag & 7
        if kind == _BYTES:
            size, position = varint_at(data, position)
            position += size
            if tag == _RAW and position <= end:
                raw.append(view[position - size : position])
                continue
        elif kind == _VARINT:
            _, position = varint_at(data, position)
        elif kind in (_FIXED32, _FIXED64):
            position += 4 if kind == _FIXED32 else 8
        else:
            return None
        if position > end:
            return None
        rest.append(view[start:position])
    return None


def tensors_at(beginning: bytes | bytearray | memoryview) -> int:
    """Return where the first raw tensor begins, by the beginning of a message.

    0 if it does not show.
    """
    position, end = 0, len(beginning)
    for _ in range(_MAX_FIELDS):
        if position >= end:
            return 0
        tag, position = beginning[position], position + 1
        if tag > _ONE_BYTE:
            tag, position = varint_at(beginning, position - 1)
        kind = tag & 7
        if kind in (_BYTES, _VARINT):
            size, position = varint_at(beginning, position)
            if tag == _RAW:
                return position
            position += size if kind == _BYTES else 0
        elif kind in (_FIXED32, _FIXED64):
            position += 4 if kind == _FIXED32 else 8
        else:
            return 0
    return 0


def varint_at(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """Return the integer and the position behind it; beyond the end without one."""
    value = shift = 0
    for byte in data[position : position + 10]:
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
    return value, len(data) + 1
