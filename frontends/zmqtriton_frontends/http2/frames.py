"""The frames of HTTP/2 (RFC 9113): their numbers, and the encoding of those the server sends.

Incoming frames are decoded where they are checked.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

#: Stands for memory where there is none.
NOTHING = memoryview(b"")

# Kinds of frames.
DATA = 0
HEADERS = 1
PRIORITY = 2
RST_STREAM = 3
SETTINGS = 4
PUSH_PROMISE = 5
PING = 6
GOAWAY = 7
WINDOW_UPDATE = 8
CONTINUATION = 9

# Flags.
END_STREAM = 1
ACK = 1
END_HEADERS = 4
PADDED = 8
HAS_PRIORITY = 32

# Error codes.
NO_ERROR = 0
PROTOCOL_ERROR = 1
FLOW_CONTROL_ERROR = 3
STREAM_CLOSED = 5
FRAME_SIZE_ERROR = 6
REFUSED_STREAM = 7
CANCEL = 8
COMPRESSION_ERROR = 9
ENHANCE_YOUR_CALM = 11
HTTP_1_1_REQUIRED = 13

# Settings.
ENABLE_PUSH = 2
MAX_CONCURRENT_STREAMS = 3
INITIAL_WINDOW_SIZE = 4
MAX_FRAME_SIZE = 5
MAX_HEADER_LIST_SIZE = 6

HEADER_BYTES = 9
#: Values that hold for each side until its SETTINGS change them, and the largest that are allowed.
DEFAULT_WINDOW = 65_535
DEFAULT_FRAME_SIZE = 16_384
LARGEST_FRAME_SIZE = 2**24 - 1
LARGEST_WINDOW = 2**31 - 1
#: The largest number of a stream.
LAST_STREAM = 2**31 - 1

#: Length (24 bits in two), kind, flags, stream.
HEADER = struct.Struct(">HBBBI")
_SHORT = struct.Struct(">HBBBII")
_PAIR = struct.Struct(">HI")
_PAIR_OF_NUMBERS = struct.Struct(">II")


def header(size: int, kind: int, flags: int, stream: int) -> bytes:
    """Return the first nine bytes of a frame."""
    return HEADER.pack(size >> 8, size & 0xFF, kind, flags, stream)


def settings(values: Mapping[int, int]) -> bytes:
    pairs = b"".join(_PAIR.pack(number, value) for number, value in values.items())
    return header(len(pairs), SETTINGS, 0, 0) + pairs


SETTINGS_ACK = header(0, SETTINGS, ACK, 0)


def ping(opaque: bytes, flags: int = 0) -> bytes:
    return header(8, PING, flags, 0) + opaque


def reset(stream: int, code: int) -> bytes:
    return _SHORT.pack(0, 4, RST_STREAM, 0, stream, code)


def window_update(stream: int, increment: int) -> bytes:
    return _SHORT.pack(0, 4, WINDOW_UPDATE, 0, stream, increment)


def goaway(last_stream: int, code: int, text: bytes = b"") -> bytes:
    return header(8 + len(text), GOAWAY, 0, 0) + _PAIR_OF_NUMBERS.pack(last_stream, code) + text


def read_settings(payload: bytes) -> list[tuple[int, int]]:
    """Return the pairs of a SETTINGS frame whose size is right."""
    return [_PAIR.unpack_from(payload, at) for at in range(0, len(payload), _PAIR.size)]
