"""One client's connection as a state machine, which checks frames and passes them to streams.

The owner of the socket calls receive() and sends what take_output() returns. A client that breaks
the rules, or costs too much, gets a GOAWAY, and the connection is over. The fields that requests
and trailers may have are those of RFC 9113, 8.1 to 8.3. Does no I/O.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from typing import NamedTuple

from zmqtriton_frontends.http2 import frames
from zmqtriton_frontends.http2.budget import Clock, PingRules
from zmqtriton_frontends.http2.control import FAREWELL, ControlFrames
from zmqtriton_frontends.http2.header_blocks import (
    MAX_LIST_BYTES,
    BadBlockError,
    HeaderBlocks,
    Headers,
    HeadersTooLargeError,
)
from zmqtriton_frontends.http2.reading import FRAME_BYTES, ConnectionFault, FrameReader
from zmqtriton_frontends.http2.stream import WINDOW_BYTES, Http2Stream

#: Flow-control window of a connection: bytes that a client may send on all streams before the
#: server raises it again.
CONNECTION_WINDOW_BYTES = 16 << 20
#: Bytes booked for an open stream, whether anything comes on it or not; and for each of its
#: headers besides its text, which handlers get as text of their own.
STREAM_BYTES = 8 << 10
FIELD_BYTES = 256


#: Makes the stream of this number, which headers have begun; it may be answered at once.
Begin = Callable[["Http2Connection", int], Http2Stream]

#: Names are lower-case tokens; values have no line ends.
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE = re.compile(rb"[^\0\r\n]*")
#: Values of pseudo-headers, which have no white space around them, either; other values may have
#: it, as with gRPC's own servers: their clients send it in metadata.
_PSEUDO_VALUE = re.compile(rb"(?:[^\0\r\n\t ](?:[^\0\r\n]*[^\0\r\n\t ])?)?")
_PSEUDO = frozenset((b":method", b":scheme", b":path", b":authority"))
_REQUIRED = (b":method", b":scheme", b":path")
#: Fields about an HTTP/1.1 connection, which HTTP/2 forbids (RFC 9113, 8.2.2).
_OF_CONNECTION = frozenset(
    (b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade")
)


def is_request(fields: Headers) -> bool:
    """True if these fields may begin a request."""
    pseudo: dict[bytes, bytes] = {}
    for position, (name, value) in enumerate(fields):
        if name[:1] != b":":
            return all(map(pseudo.get, _REQUIRED)) and is_trailers(fields[position:])
        if name not in _PSEUDO or name in pseudo or not _PSEUDO_VALUE.fullmatch(value):
            return False
        pseudo[name] = value
    return all(map(pseudo.get, _REQUIRED))


def is_trailers(fields: Headers) -> bool:
    """True if these are regular fields only, without the ones that only HTTP/1.1 has."""
    return all(
        _NAME.fullmatch(name)
        and _VALUE.fullmatch(value)
        and name not in _OF_CONNECTION
        and (name != b"te" or value == b"trailers")
        for name, value in fields
    )


def content_length(fields: Headers) -> int | None:
    """Return the announced length, -1 without one; None for an invalid one."""
    lengths = [value for name, value in fields if name == b"content-length"]
    if not lengths:
        return -1
    if len(lengths) > 1 or not re.fullmatch(rb"[0-9]{1,18}", lengths[0]):
        return None
    return int(lengths[0])


class _Block(NamedTuple):
    """The result of reading one header block."""

    #: Makes a stream that begins with this block; None if no stream can.
    begin: Begin | None
    fields: Headers
    #: Announced bytes of the body; -1 if the client does not say.
    content_length: int
    #: Bytes that are booked for a stream that begins with this block.
    kept_bytes: int = STREAM_BYTES


def _block(headers: Headers, read: Callable[[Headers], Begin | None]) -> _Block:
    length = content_length(headers)
    if length is None or not is_request(headers):
        return _Block(None, headers, -1)
    text = sum(len(name) + len(value) for name, value in headers)
    kept = STREAM_BYTES + 2 * text + FIELD_BYTES * len(headers)
    return _Block(read(headers), headers, length, kept)


class Rules(NamedTuple):
    max_streams: int = 100
    pings: PingRules = PingRules()


class Http2Connection(ControlFrames):
    def __init__(
        self,
        read: Callable[[Headers], Begin | None],
        wake: Callable[[], object],
        rules: Rules,
        clock: Clock = time.monotonic,
        admits: Callable[[Http2Connection, int], bool] = lambda _, kept: True,
        keeps: Callable[[int], bool] = lambda size: True,
    ) -> None:
        """Set up the state machine.

        `read` returns a maker of streams that begin with these headers, or None to reset such a
        stream; equal headers may be read once for many streams. `admits` returns whether open
        streams may take this number of bytes; it is called above room_bytes. `keeps` is passed to
        HeaderBlocks.
        """
        super().__init__(wake, rules.pings, clock)
        self._admits = admits
        #: Bytes that open streams may take before `admits` is asked.
        self.room_bytes = 0
        self._max_streams = rules.max_streams
        self._blocks: HeaderBlocks[_Block] = HeaderBlocks(
            lambda headers: _block(headers, read), keeps
        )
        self._handlers[frames.HEADERS] = self._take_block
        self.reading = FrameReader(self, self._handlers, clock)
        #: The stream of the DATA frame that is coming.
        self._data_stream: Http2Stream | None = None
        self._data_is_last = False
        self._credit = CONNECTION_WINDOW_BYTES
        #: Nothing more is read or answered.
        self.is_over = False
        #: The fault of the client that has ended the connection, until it is logged; or None.
        self.fault: ConnectionFault | None = None
        own = {
            frames.MAX_CONCURRENT_STREAMS: rules.max_streams,
            frames.INITIAL_WINDOW_SIZE: WINDOW_BYTES,
            frames.MAX_FRAME_SIZE: FRAME_BYTES,
            frames.MAX_HEADER_LIST_SIZE: MAX_LIST_BYTES,
        }
        self.write(
            frames.settings(own)
            + frames.window_update(0, CONNECTION_WINDOW_BYTES - frames.DEFAULT_WINDOW)
        )

    def receive(self, data: memoryview, until: float = math.inf) -> int:
        """Process bytes of the client; return the number of unread bytes when the time is over.

        Pass the unread bytes again, before any others.
        """
        if self.is_over:
            return 0
        try:
            return self.reading.read(data, until)
        except ConnectionFault as fault:
            return self._end_by(fault)

    def _end_by(self, fault: ConnectionFault) -> int:
        self.fault = fault
        self.end(fault.code, fault.text.encode())
        return 0

    @property
    def stream_count(self) -> int:
        """Return the number of streams that the client has opened."""
        return (self._last_stream + 1) // 2

    def room(self) -> memoryview:
        """Return memory for the next bytes, for filled(); an empty view if receive() takes them."""
        stream = self._data_stream
        if stream is None or not stream.is_open:
            return frames.NOTHING
        return stream.room()[: self.reading.data_left]

    def filled(self, size: int) -> None:
        """Pass bytes that were written into room() on to their stream."""
        stream = self._data_stream
        assert stream is not None
        stream.on_filled(size)
        if stream.is_open and not self._data_is_last:
            self.give_credit(stream)
        try:
            self.reading.skip_data(size)
        except ConnectionFault as fault:
            self._end_by(fault)

    # --------------------------------------------------------------------- data

    def take_whole(self, number: int, flags: int, data: memoryview) -> None:
        stream, size = self.streams.get(number), len(data)
        left = self._credit - size
        if (
            stream is None
            or stream.was_ended
            or stream.announced >= 0
            or not 0 < size <= stream.credit
            or left < CONNECTION_WINDOW_BYTES // 2
        ):
            self.begin_data(number, flags, size, size)
            self.take_data(data)
            self.end_data()
            return
        self._credit = left
        stream.credit -= size
        stream.was_ended = bool(flags & frames.END_STREAM)
        stream.on_data(data)
        if not stream.was_ended:
            self.give_credit(stream)

    def _is_announced(self, stream: Http2Stream, size: int) -> bool:
        """True if `size` bytes fit into the announced length; otherwise refuses the stream."""
        stream.announced -= size
        if stream.announced < 0:
            self.refuse(stream, frames.PROTOCOL_ERROR)
        return stream.announced >= 0

    def begin_data(self, number: int, flags: int, size: int, data_size: int) -> None:
        stream = self.streams.get(number)
        if stream is None:
            self._check_known(number)
            self._check_left_early(number)
        elif stream.was_ended:
            self.refuse(stream, frames.STREAM_CLOSED)
            stream = None
        self._credit -= size
        if self._credit < 0:
            raise ConnectionFault(frames.FLOW_CONTROL_ERROR, "DATA exceeds the flow-control window")
        if self._credit < CONNECTION_WINDOW_BYTES // 2:
            self.write(frames.window_update(0, CONNECTION_WINDOW_BYTES - self._credit))
            self._credit = CONNECTION_WINDOW_BYTES
        if stream is not None:
            stream.credit -= size
            if stream.credit < 0:
                self.refuse(stream, frames.FLOW_CONTROL_ERROR)
                stream = None
            elif stream.announced >= 0 and not self._is_announced(stream, max(0, data_size)):
                stream = None
        if not data_size and not flags & frames.END_STREAM:
            self._take_idle_frame()
        self._data_stream = stream
        self._data_is_last = bool(flags & frames.END_STREAM)

    def take_data(self, data: memoryview) -> None:
        stream = self._data_stream
        if stream is not None and stream.is_open:
            stream.on_data(data)
            if not self._data_is_last:
                self.give_credit(stream)

    def end_data(self) -> None:
        stream, self._data_stream = self._data_stream, None
        if stream is not None and stream.is_open and self._data_is_last:
            self._end_of(stream)

    def give_credit(self, stream: Http2Stream) -> None:
        """Let the client send more on a stream, if it wants data and this is worth a frame."""
        if 0 < stream.expected <= stream.credit:
            return
        if stream.is_holding or stream.was_ended or not stream.is_open:
            return
        missing = stream.window_target - stream.credit
        if missing * 2 > stream.window_target:
            stream.credit = stream.window_target
            self.write(frames.window_update(stream.id, missing))

    def _end_of(self, stream: Http2Stream) -> None:
        stream.was_ended = True
        if stream.announced > 0:
            self.refuse(stream, frames.PROTOCOL_ERROR)  # less has come than was announced
        else:
            stream.on_end()

    # ------------------------------------------------------------------ headers

    def _take_block(self, flags: int, number: int, block: bytes) -> None:
        try:
            read = self._blocks[block]
        except HeadersTooLargeError as error:
            raise ConnectionFault(frames.ENHANCE_YOUR_CALM, str(error)) from None
        except BadBlockError as error:
            raise ConnectionFault(frames.COMPRESSION_ERROR, str(error)) from None
        if number <= self._last_stream:
            self._take_trailers(number, flags, read.fields)
            return
        self._last_stream = number
        kept = self.kept_bytes + read.kept_bytes
        is_too_many = len(self.streams) >= self._max_streams
        if (
            self.is_closing
            or is_too_many
            or (kept > self.room_bytes and not self._admits(self, kept))
        ):
            self._refuse_new(number, frames.REFUSED_STREAM)
            return
        if read.begin is None:
            self._refuse_new(number, frames.PROTOCOL_ERROR)
            return
        stream = read.begin(self, number)
        if not stream.is_open:  # it was answered as it was made
            return
        stream.announced = read.content_length
        self.streams[number] = stream
        self.kept_bytes = kept
        stream.kept_bytes = read.kept_bytes
        if flags & frames.END_STREAM:
            self._end_of(stream)

    def _take_trailers(self, number: int, flags: int, fields: Headers) -> None:
        stream = self.streams.get(number)
        if stream is None:
            self._check_left_early(number)
            self._take_idle_frame()
        elif stream.was_ended:
            self.refuse(stream, frames.STREAM_CLOSED)
        elif not (flags & frames.END_STREAM and is_trailers(fields)):
            self.refuse(stream, frames.PROTOCOL_ERROR)
        else:
            self._end_of(stream)

    # ---------------------------------------------------------------------- end

    @property
    def is_done(self) -> bool:
        """True if the connection must be closed once the frames in `out` are sent."""
        return self.is_closing and not self.streams

    def leave(self) -> None:
        """Send a GOAWAY; calls that the client begins before it reads the GOAWAY are answered."""
        if not self.is_over and not self._is_leaving:
            self._is_leaving = True
            self.write(frames.goaway(frames.LAST_STREAM, frames.NO_ERROR) + frames.ping(FAREWELL))

    def refuse_unseen(self, stream: Http2Stream) -> None:
        """Refuse a stream that crossed with leave(); its client may try another server."""
        if not self.is_closing and stream.id == self._last_stream:
            self.is_closing = True  # by this, and by nothing else, gRPC's library knows it
            self.write(frames.goaway(max(0, stream.id - 2), frames.NO_ERROR))
        self.reset(stream, frames.REFUSED_STREAM)

    def end(self, code: int, text: bytes = b"") -> None:
        """End the connection at once; requests in flight are lost."""
        if not self.is_over:
            self.write(frames.goaway(self._last_stream, code, text))
        self.lose()

    def lose(self) -> None:
        """Forget all streams, because the connection is gone."""
        self.is_over = self.is_closing = True
        for stream in list(self.streams.values()):
            self.forget(stream)
            stream.on_reset()
