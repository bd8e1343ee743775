"""Messages in the data of a stream: a byte that says whether it is compressed, four that say how
long it is, and the message.

Used by stream_call.py. Does no I/O. Takes memory for what has come, never for what is announced.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Protocol

from zmqtriton_floor.errors import InternalError, ZmqTritonError
from zmqtriton_frontends.grpc_api.inference.response import MAX_MESSAGE_BYTES
from zmqtriton_frontends.process import codecs

_PREFIX = struct.Struct(">BI")
PREFIX_BYTES = _PREFIX.size

Message = bytes | bytearray | memoryview


class TooLargeError(ZmqTritonError):
    """gRPC has a status of its own for it."""

    grpc_status = 8


def prefix(size: int, *, is_compressed: bool = False) -> bytes:
    """What stands before a message of this size."""
    return _PREFIX.pack(is_compressed, size)


def too_large(size: int, most: int) -> TooLargeError:
    return TooLargeError(f"Received message larger than max ({size} vs. {most})")


class Unfinished:
    """What has come of messages that are not whole, of all clients of a process: each may be large,
    but not all of them at once."""

    def __init__(self, most: int = 2 << 30, most_message: int = MAX_MESSAGE_BYTES) -> None:
        self._most = most
        #: What one of them may have.
        self.most_message = most_message
        self.bytes = 0

    def add(self, size: int) -> None:
        """Raises TooLargeError where that is too much."""
        if self.bytes + size > self._most:
            raise TooLargeError("Too many large requests are being sent to this server")
        self.bytes += size

    def remove(self, size: int) -> None:
        self.bytes -= size


class Body(Protocol):
    """Takes what comes of a message."""

    def add(self, part: memoryview) -> None:
        """The next bytes, to be used before this returns."""

    def room(self) -> memoryview:
        """Where the next bytes may be written by others; empty: nowhere."""

    def filled(self, size: int) -> None:
        """So many were."""

    def whole(self) -> Any:
        """All of them; called once."""

    def drop(self) -> None:
        """The rest will not come."""


class Gathering:
    """A body in memory of its own."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, part: memoryview) -> None:
        self._data += part

    def room(self) -> memoryview:
        return _NOWHERE

    def filled(self, size: int) -> None:
        raise AssertionError("there is no room")

    def whole(self) -> bytearray:
        return self._data

    def drop(self) -> None:
        self._data = bytearray()


_NOWHERE = memoryview(b"")


class Assembly:
    """Puts together the messages of one stream."""

    __slots__ = (
        "_body",
        "_come",
        "_head",
        "_is_compressed",
        "_large",
        "_large_bytes",
        "_unfinished",
        "left",
    )

    def __init__(
        self,
        unfinished: Unfinished,
        large: Callable[[int], Body] | None = None,
        large_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        """large: makes the body of a message of more than large_bytes that is not compressed."""
        self._unfinished = unfinished
        #: What of the current message has come.
        self._come = 0
        self._large = large
        self._large_bytes = min(large_bytes, unfinished.most_message)
        self._head = b""
        self._is_compressed = False
        self._body: Body | None = None
        #: What of the current message has still to come; 0 between two.
        self.left = 0

    @property
    def is_amid(self) -> bool:
        """Part of a message has come."""
        return self._body is not None or bool(self._head)

    def room(self) -> memoryview:
        """Where the next bytes may be written, to be told to filled(); empty: nowhere."""
        return _NOWHERE if self._body is None else self._body.room()[: self.left]

    def filled(self, size: int) -> list[tuple[bool, Any]]:
        """As feed(), of what was written into the room."""
        assert self._body is not None
        self._body.filled(size)
        self._count(size)
        return [] if self.left else [self._take_whole()]

    def drop(self) -> None:
        """Nothing more will come."""
        if self._body is not None:
            self._body.drop()
            self._body = None
            self._unfinished.remove(self._come)

    def _count(self, size: int) -> None:
        self._unfinished.add(size)
        self._come += size
        self.left -= size

    def feed(self, data: memoryview) -> list[tuple[bool, Any]]:
        """What is complete now, each with whether it is compressed. Raises TooLargeError and
        InternalError; then nothing more may be fed."""
        size = len(data)
        if self._body is not None and size < self.left:
            self._count(size)
            self._body.add(data)
            return []
        if self._body is None and not self._head and size >= PREFIX_BYTES:
            compressed, announced = _PREFIX.unpack_from(data)
            is_whole = announced == size - PREFIX_BYTES <= self._large_bytes
            if is_whole and compressed <= 1:  # nearly always
                return [(compressed == 1, bytes(data[PREFIX_BYTES:]))]
        found: list[tuple[bool, Any]] = []
        position = 0
        while position < size or (self._body is not None and not self.left):
            if self._body is None:
                position = self._read_head(data, position)
                continue
            part = data[position : position + self.left]
            self._count(len(part))
            self._body.add(part)
            position += len(part)
            if not self.left:
                found.append(self._take_whole())
        return found

    def _take_whole(self) -> tuple[bool, Any]:
        assert self._body is not None
        whole, self._body = self._body.whole(), None
        self._unfinished.remove(self._come)
        return self._is_compressed, whole

    def _read_head(self, data: memoryview, position: int) -> int:
        missing = PREFIX_BYTES - len(self._head)
        self._head += data[position : position + missing]
        if len(self._head) == PREFIX_BYTES:
            compressed, announced = _PREFIX.unpack(self._head)
            if compressed > 1:
                raise InternalError("a message neither plain nor compressed")
            if announced > self._unfinished.most_message:
                raise too_large(announced, self._unfinished.most_message)
            self._head = b""
            self._is_compressed = bool(compressed)
            self.left, self._come = announced, 0
            if self._large is not None and not compressed and announced > self._large_bytes:
                self._body = self._large(announced)
            else:
                self._body = Gathering()
        return min(position + missing, len(data))


def inflate(data: Message, encoding: str, most: int = MAX_MESSAGE_BYTES) -> bytes:
    """The message as it was. Raises InternalError where it is none, TooLargeError where it has more
    than so many bytes."""
    if encoding not in codecs.CODINGS:
        raise InternalError("a compressed message without a grpc-encoding")
    whole = codecs.inflate(data, encoding, most)
    if whole is None:
        raise InternalError(f"the message is not compressed with {encoding}")
    if len(whole) > most:
        raise TooLargeError(f"Received message larger than max (> {most})")
    return whole
