"""Messages in the data of a stream.

A message has one byte that is 1 if it is compressed, four for its length, and its bytes. Does no
I/O. Takes memory for bytes that have come, never for an announced length.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from zmqtriton_floor.errors import InternalError, ZmqTritonError
from zmqtriton_frontends.grpc_api.call import NoRequestRoomError
from zmqtriton_frontends.grpc_api.inference.response import MAX_MESSAGE_BYTES
from zmqtriton_frontends.process import codecs
from zmqtriton_frontends.process.ledger import Share
from zmqtriton_frontends.tensors.arena_body import MIN_BYTES, NOTHING, ArenaBody

_PREFIX = struct.Struct(">BI")
PREFIX_BYTES = _PREFIX.size

Message = bytes | bytearray | memoryview


class MessageTooLargeError(ZmqTritonError):
    """Raised for a message that is too large; gRPC has a status of its own for this."""

    grpc_status = 8


#: (is compressed, size) -> the prefix of a message
prefix = _PREFIX.pack
read_prefix = _PREFIX.unpack_from


@dataclass(eq=False)
class Unfinished:
    """Counts the bytes of incomplete messages of one client."""

    share: Share
    #: The limit of one message.
    max_message: int = MAX_MESSAGE_BYTES
    #: Number of messages that have ended, complete or not.
    ended: int = 0


class GatheredBody:
    """A message in ordinary memory, as its parts arrive."""

    __slots__ = ("_data", "held_bytes")

    def __init__(self) -> None:
        self._data = bytearray()
        self.held_bytes = 0

    def add(self, part: memoryview) -> None:
        self._data += part
        self.held_bytes = len(self._data)

    def whole(self) -> bytearray:
        return self._data

    def drop(self) -> None:
        self._data = bytearray()


class Assembly:
    """Assembles the messages of one stream."""

    __slots__ = (
        "_body",
        "_head",
        "_held",
        "_is_compressed",
        "_large",
        "_unfinished",
        "left",
    )

    def __init__(
        self,
        unfinished: Unfinished,
        large: Callable[[int], ArenaBody] | None = None,
    ) -> None:
        """Set up; `large` makes the body of a large uncompressed message."""
        self._unfinished = unfinished
        #: Bytes of the current message that are booked.
        self._held = 0
        self._large = large
        self._head = b""
        self._is_compressed = False
        self._body: ArenaBody | GatheredBody | None = None
        #: Bytes of the current message that are still to come; 0 between two.
        self.left = 0

    @property
    def is_amid(self) -> bool:
        """True if a part of a message, but not all of it, has come."""
        return self._body is not None or bool(self._head)

    def room(self) -> memoryview:
        """Return memory for the next bytes, for filled(); an empty view if feed() takes them."""
        return self._body.room()[: self.left] if isinstance(self._body, ArenaBody) else NOTHING

    def filled(self, size: int) -> list[tuple[bool, Any]]:
        """Return the messages that are complete now, for bytes written to room()'s memory."""
        assert isinstance(self._body, ArenaBody), "it has the room"
        self._body.filled(size)
        self._count(size)
        return [] if self.left else [self._take_whole()]

    def drop(self) -> None:
        """Drop all data: no more will come."""
        if self._body is not None:
            self._body.drop()
            self._body = None
            self._forget()

    def _forget(self) -> None:
        """Stop counting the message's bytes: it is complete, or will never be."""
        self._unfinished.ended += 1
        if self._held:
            self._unfinished.share.add(-self._held)
            self._held = 0

    def _count(self, size: int) -> None:
        """Count arrived bytes, and account for those in ordinary memory."""
        assert self._body is not None
        self.left -= size
        held = self._body.held_bytes
        if held != self._held and not self._unfinished.share.change(held - self._held):
            raise NoRequestRoomError
        self._held = held

    def feed(self, data: memoryview) -> list[tuple[bool, Any]]:
        """Return the messages that are complete now, each with whether it is compressed.

        Raises MessageTooLargeError, NoRequestRoomError and InternalError; no data may be fed after
        an error.
        """
        size = len(data)
        if self._body is not None and size < self.left:
            self._body.add(data)
            self._count(size)
            return []
        messages: list[tuple[bool, Any]] = []
        position = 0
        while position < size or (self._body is not None and not self.left):
            if self._body is None:
                position = self._read_head(data, position)
                continue
            part = data[position : position + self.left]
            self._body.add(part)
            self._count(len(part))
            position += len(part)
            if not self.left:
                messages.append(self._take_whole())
        return messages

    def _take_whole(self) -> tuple[bool, Any]:
        assert self._body is not None
        whole, self._body = self._body.whole(), None
        self._forget()
        return self._is_compressed, whole

    def _read_head(self, data: memoryview, position: int) -> int:
        missing = PREFIX_BYTES - len(self._head)
        self._head += data[position : position + missing]
        if len(self._head) == PREFIX_BYTES:
            compressed, announced = _PREFIX.unpack(self._head)
            if compressed > 1:
                raise InternalError("a message neither plain nor compressed")
            if announced > self._unfinished.max_message:
                limit = self._unfinished.max_message
                raise MessageTooLargeError(
                    f"Received message larger than max ({announced} vs. {limit})"
                )
            self._head = b""
            self._is_compressed = bool(compressed)
            self.left = announced
            if self._large is not None and not compressed and announced > MIN_BYTES:
                self._body = self._large(announced)
            else:
                self._body = GatheredBody()
        return min(position + missing, len(data))


def holder(share: Share) -> Callable[[int], None]:
    """Return a function that reserves or releases room; it raises NoRequestRoomError."""

    def hold(size: int) -> None:
        if not share.change(size):
            raise NoRequestRoomError

    return hold


async def inflate(
    data: Message, encoding: str, unfinished: Unfinished, held: Share, client: object
) -> Message:
    """Inflate a client's message; `held` accounts for its memory.

    Raises InternalError if the message is malformed, MessageTooLargeError if it is larger than the
    limit, NoRequestRoomError if there is no room for it.
    """
    limit = unfinished.max_message
    if encoding not in codecs.CODINGS:
        raise InternalError("a compressed message without a grpc-encoding")
    whole = await codecs.inflate(data, encoding, limit, client, hold=holder(held))
    if whole is None:
        raise InternalError(f"the message is not compressed with {encoding}")
    if len(whole) > limit:
        raise MessageTooLargeError(f"Received message larger than max (> {limit})")
    return whole
