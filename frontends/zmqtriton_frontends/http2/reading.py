"""Splits bytes into frames, assembles header blocks, and passes data on as it arrives.

The receiving half of a connection: connection.py gets each frame from here. Checks only rules that
need no knowledge of the connection's streams. Keeps at most one frame and one block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from zmqtriton_frontends.http2 import frames
from zmqtriton_frontends.http2.budget import Clock
from zmqtriton_frontends.http2.header_blocks import MAX_LIST_BYTES

#: Size of the largest DATA frame, in bytes; its data are passed on as they come. Other frames are
#: smaller.
FRAME_BYTES = 1 << 20
_HEADER_BYTES = frames.HEADER_BYTES
#: Frames that one block of headers may be cut into: HEADERS and its CONTINUATIONs.
_BLOCK_FRAMES = 32

#: Flags of a HEADERS frame that decide how its payload is read.
_BLOCK_FLAGS = frames.END_HEADERS | frames.PADDED | frames.HAS_PRIORITY


_MALFORMED, _TOO_LARGE = "malformed HEADERS", "frame exceeds SETTINGS_MAX_FRAME_SIZE"

#: Takes the flags, the stream and the payload of a frame; raises ConnectionFault.
Handler = Callable[[int, int, bytes], None]


class ConnectionFault(Exception):
    """Raised if the client has broken a rule that ends the connection."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Taker(Protocol):
    """Gets the data as they arrive; raises ConnectionFault."""

    def take_whole(self, number: int, flags: int, data: memoryview) -> None:
        """Take a complete DATA frame without padding; other frames use the three methods below."""

    def begin_data(self, number: int, flags: int, size: int, data_size: int) -> None:
        """Take the beginning of a DATA frame, with the size of the frame and of its data."""

    def take_data(self, data: memoryview) -> None:
        """Take some of the frame's data, which must be used before this returns."""

    def end_data(self) -> None:
        """Take the end of the frame."""


class FrameReader:
    def __init__(self, taker: Taker, handlers: Sequence[Handler], clock: Clock) -> None:
        """Set up; `handlers` take all other frames, each the frames whose kind is its index.

        The handler of HEADERS gets whole blocks, on streams that a client may begin.
        """
        self._clock = clock
        self._taker = taker
        self._handlers = handlers
        #: A frame, or a block of headers, has come in part.
        self.is_amid_frame = False
        self._has_preface = False
        #: The beginning of a frame whose rest has not come, and how much of it is needed.
        self._early = bytearray()
        self._needed = 0
        #: The DATA frame that is coming: whether there is one, then the missing bytes of its data,
        #: which come next and are nothing else, and of the padding after them.
        self._is_in_data = False
        self.data_left = 0
        self._padding_left = 0
        #: The incomplete header block: stream, flags, frames and bytes.
        self._block_stream = 0
        self._block_flags = 0
        self._block_frames = 0
        self._block = bytearray()

    def skip_data(self, size: int) -> None:
        """Count bytes of data that were received directly into their place in memory."""
        self.data_left -= size
        self._read_data(frames.NOTHING, 0)
        self.is_amid_frame = self._is_in_data

    def read(self, data: memoryview, until: float) -> int:
        """Read bytes, at least one frame; return the number of unread bytes when the time is over.

        Raises ConnectionFault; then nothing more may be read.
        """
        data = self._with_early(data) if self._early else data
        position = 0 if self._has_preface else self._read_preface(data)
        if self._is_in_data:
            position = self._read_data(data, position)
        end, needed, unpack = len(data), _HEADER_BYTES, frames.HEADER.unpack_from
        first, clock = position, self._clock
        while end - position >= _HEADER_BYTES:
            if position > first and clock() >= until:
                self.is_amid_frame = bool(self._is_in_data or self._block_stream)
                return end - position
            high, low, kind, flags, number = unpack(data, position)
            size, number = high << 8 | low, number & frames.LAST_STREAM
            start, stop = position + _HEADER_BYTES, position + _HEADER_BYTES + size
            if kind == frames.DATA and not self._block_stream:
                if stop <= end and size <= FRAME_BYTES and not flags & frames.PADDED:
                    self._taker.take_whole(number, flags, data[start:stop])
                    position = stop
                else:
                    position = self._begin_data(data, position, number, flags, size)
                continue
            is_of_headers = kind in (frames.HEADERS, frames.CONTINUATION)
            if size > (MAX_LIST_BYTES if is_of_headers else frames.DEFAULT_FRAME_SIZE):
                raise ConnectionFault(frames.FRAME_SIZE_ERROR, _TOO_LARGE)
            if stop > end:
                needed = _HEADER_BYTES + size
                break
            position = stop
            payload = bytes(data[start:stop])
            # a whole block, as nearly always
            is_block = kind == frames.HEADERS and flags & _BLOCK_FLAGS == frames.END_HEADERS
            if self._block_stream or (is_of_headers and not (is_block and number & 1)):
                self._add_to_block(kind, flags, number, payload)
            else:
                self._handlers[kind](flags, number, payload)
        if position < end:
            self._keep(data[position:], needed)
        self.is_amid_frame = bool(self._early or self._is_in_data or self._block_stream)
        return 0

    def _with_early(self, data: memoryview) -> memoryview:
        """Return kept and new bytes as one view; if more bytes are needed, keep all of them."""
        self._early += data
        if len(self._early) < self._needed:
            return frames.NOTHING
        whole = memoryview(bytes(self._early))
        self._early.clear()
        return whole

    def _read_preface(self, data: memoryview) -> int:
        """Return the position of the first frame; an incomplete preface is kept."""
        size = len(frames.PREFACE)
        if data[:size] != frames.PREFACE[: len(data)]:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "not an HTTP/2 connection preface")
        if len(data) < size + _HEADER_BYTES:
            self._early += data
            return len(data)
        if data[size + 3] != frames.SETTINGS:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "the first frame must be SETTINGS")
        self._has_preface = True
        return size

    @property
    def held_bytes(self) -> int:
        """The size of the arrived part of an incomplete frame or block."""
        return len(self._early) + len(self._block)

    def _keep(self, data: memoryview, needed: int) -> None:
        self._early += data
        self._needed = needed

    # --------------------------------------------------------------------- data

    def _begin_data(
        self, data: memoryview, position: int, number: int, flags: int, size: int
    ) -> int:
        """Begin a data frame at the position.

        Returns what _read_data() does; a part that is too short is kept.
        """
        if size > FRAME_BYTES:
            raise ConnectionFault(frames.FRAME_SIZE_ERROR, _TOO_LARGE)
        padding, start = -1, position + _HEADER_BYTES
        if flags & frames.PADDED:
            if start == len(data):
                self._keep(data[position:], _HEADER_BYTES + 1)
                return len(data)
            padding = data[start]
            start += 1
        if padding >= size:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "padding exceeds the frame")
        data_size = size - 1 - padding  # without padding it is -1
        self._taker.begin_data(number, flags, size, data_size)
        self._is_in_data = True
        self.data_left, self._padding_left = data_size, max(0, padding)
        return self._read_data(data, start)

    def _read_data(self, data: memoryview, position: int) -> int:
        """Pass on the frame's arrived data; return the position of its end."""
        if self.data_left:
            part = data[position : position + self.data_left]
            size = len(part)
            self.data_left -= size
            position += size
            if size:
                self._taker.take_data(part)
        if not self.data_left:
            skipped = min(self._padding_left, len(data) - position)
            self._padding_left -= skipped
            position += skipped
            if not self._padding_left:
                self._is_in_data = False
                self._taker.end_data()
        return position

    # ------------------------------------------------------------------ headers

    def _add_to_block(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if not self._block_stream:
            if kind != frames.HEADERS or number % 2 == 0:
                raise ConnectionFault(frames.PROTOCOL_ERROR, _MALFORMED)
            if flags & (frames.PADDED | frames.HAS_PRIORITY):
                payload = _fragment(flags, payload)
            self._block_stream, self._block_flags, self._block_frames = number, flags, 0
        elif kind != frames.CONTINUATION or number != self._block_stream:
            raise ConnectionFault(frames.PROTOCOL_ERROR, "CONTINUATION expected")
        self._block += payload
        self._block_frames += 1
        if self._block_frames > _BLOCK_FRAMES or len(self._block) > MAX_LIST_BYTES:
            raise ConnectionFault(frames.ENHANCE_YOUR_CALM, "too many CONTINUATION frames")
        if flags & frames.END_HEADERS:
            block = bytes(self._block)
            self._block.clear()
            self._block_stream = 0
            self._handlers[frames.HEADERS](self._block_flags, number, block)


def _fragment(flags: int, payload: bytes) -> bytes:
    """Return the header block's part in a HEADERS frame, without padding and priority."""
    start, end = 0, len(payload)
    if flags & frames.PADDED:
        start, end = 1, end - (payload[0] if payload else 1)
    if flags & frames.HAS_PRIORITY:
        start += 5
    if start > end:
        raise ConnectionFault(frames.PROTOCOL_ERROR, _MALFORMED)
    return payload[start:end]
