"""Messages in the data of a stream: a byte that says whether it is compressed, four that say how
long it is, and the message.

Used by native_call.py. Does no I/O. Takes memory for what has come, never for what is announced.
"""

from __future__ import annotations

import struct
import zlib

from zmqtriton_floor.errors import InternalError, ZmqTritonError
from zmqtriton_frontends.grpc_api.response import MAX_MESSAGE_BYTES

_PREFIX = struct.Struct(">BI")
PREFIX_BYTES = _PREFIX.size

#: Window bits that zlib wants for each algorithm.
_WINDOW = {"gzip": 31, "deflate": 15}
_LEVEL = 1

Message = bytes | bytearray


class TooLargeError(ZmqTritonError):
    """gRPC has a status of its own for it."""

    grpc_status = 8


def prefix(size: int, *, is_compressed: bool = False) -> bytes:
    """What stands before a message of this size."""
    return _PREFIX.pack(is_compressed, size)


class Assembly:
    """Puts together the messages of one stream."""

    __slots__ = ("_body", "_head", "_is_compressed", "left")

    def __init__(self) -> None:
        self._head = b""
        self._is_compressed = False
        self._body: bytearray | None = None
        #: What of the current message has still to come; 0 between two.
        self.left = 0

    @property
    def is_amid(self) -> bool:
        """Part of a message has come."""
        return self._body is not None or bool(self._head)

    def feed(self, data: memoryview) -> list[tuple[bool, Message]]:
        """What is complete now, each with whether it is compressed. Raises TooLargeError and
        InternalError; then nothing more may be fed."""
        size = len(data)
        if self._body is None and not self._head and size >= PREFIX_BYTES:
            compressed, announced = _PREFIX.unpack_from(data)
            if announced == size - PREFIX_BYTES and compressed <= 1:  # nearly always
                return [(compressed == 1, bytes(data[PREFIX_BYTES:]))]
        found: list[tuple[bool, Message]] = []
        position = 0
        while position < size or (self._body is not None and not self.left):
            if self._body is None:
                position = self._read_head(data, position)
                continue
            part = data[position : position + self.left]
            self._body += part
            position += len(part)
            self.left -= len(part)
            if not self.left:
                found.append((self._is_compressed, self._body))
                self._body = None
        return found

    def _read_head(self, data: memoryview, position: int) -> int:
        missing = PREFIX_BYTES - len(self._head)
        self._head += data[position : position + missing]
        if len(self._head) == PREFIX_BYTES:
            compressed, announced = _PREFIX.unpack(self._head)
            if compressed > 1:
                raise InternalError("a message neither plain nor compressed")
            if announced > MAX_MESSAGE_BYTES:
                raise TooLargeError(
                    f"Received message larger than max ({announced} vs. {MAX_MESSAGE_BYTES})"
                )
            self._head = b""
            self._is_compressed = bool(compressed)
            self._body, self.left = bytearray(), announced
        return min(position + missing, len(data))


def inflate(data: Message, encoding: str) -> bytes:
    """The message as it was. Raises InternalError where it is none, TooLargeError where it is
    larger than a message may be."""
    if encoding not in _WINDOW:
        raise InternalError("a compressed message without a grpc-encoding")
    stream = zlib.decompressobj(_WINDOW[encoding])
    try:
        whole = stream.decompress(data, MAX_MESSAGE_BYTES + 1)
    except zlib.error:
        raise InternalError(f"the message is not compressed with {encoding}") from None
    if len(whole) > MAX_MESSAGE_BYTES:
        raise TooLargeError(f"Received message larger than max (> {MAX_MESSAGE_BYTES})")
    if not stream.eof or stream.unused_data:
        raise InternalError(f"the message is not compressed with {encoding}")
    return whole


def deflate(data: bytes, encoding: str) -> bytes:
    stream = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW[encoding])
    return stream.compress(data) + stream.flush()
