"""Streams of HTTP/2: the state of one, and the sending half of the connection that they share.

connection.py changes a stream's state. Classes that answer requests derive from Http2Stream, and
handle the data of clients.

Sending decides which stream may send now, and encodes frames; control.py and connection.py derive
from it. Data wait in their stream while the client's window has no room, or earlier data are
unread; streams with waiting data take turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from zmqtriton_frontends.http2 import frames

#: Flow-control window of a stream: bytes that a client may send before the server raises it again.
#: A request that fits costs no round trip, and gRPC's own library sends it as one frame.
WINDOW_BYTES = 1 << 20

#: Bytes of frames that are prepared at once; more would only wait in the transport.
_MAX_READY = 1 << 20
#: Bytes that a stream may send before another one has its turn.
_TURN_BYTES = 256 * 1024
#: Largest piece, in bytes, that is copied, and that small ones are joined to; a larger one is sent
#: from where it lies.
_COPIED_BYTES = 4 * 1024
#: Largest answer, in bytes, that is joined into one piece.
_JOINED_BYTES = 64 * 1024

#: Pieces that are sent one after the other.
Pieces = Sequence[bytes | memoryview]

#: Streams that are remembered after an early end. If a client has more of them on its way, a frame
#: on a forgotten one ends its connection.
_MAX_LEFT_EARLY = 1024
_HEADERS_END = frames.END_HEADERS | frames.END_STREAM


class Http2Stream:
    """A stream: it lives from its first header until both sides have ended it, or one reset it."""

    #: Bytes that the client may send, and the value that this window is raised to.
    credit = window_target = WINDOW_BYTES
    #: Bytes that the client has announced and not sent; 0 if unknown.
    expected = 0
    #: Bytes still expected by content-length; -1 without the header.
    announced = -1
    #: Set while nothing more is wanted: the credit is not raised.
    is_holding = False
    #: The client has sent everything.
    was_ended = False
    #: We have given everything, though some of it may still wait here.
    has_ended = False
    #: Set until the stream is reset, or ended by both sides.
    is_open = True
    #: Bytes that are booked while the stream is open, for its headers, too.
    kept_bytes = 0
    #: Set while the stream is among those that may send.
    has_turn = False
    #: Data that wait, if any ever did.
    outgoing: deque[memoryview] | None = None
    outgoing_bytes = 0
    #: The header block that ends it, to be sent after all data.
    trailers: bytes | None = None

    def __init__(self, connection: Any, number: int) -> None:
        self.connection = connection
        self.id = number
        #: Bytes that the server may send on this stream; below 0 if the client has reduced the
        #: window.
        self.window: int = connection.first_window

    @property
    def authorization(self) -> tuple[str, ...]:
        """Return the `authorization` values of the stream's request."""
        return ()

    @property
    def is_silent(self) -> bool:
        """True if the client has sent no data although its headers announce some."""
        return False

    @property
    def is_amid_message(self) -> bool:
        """True if an incomplete message has arrived."""
        return False

    def expire(self) -> None:
        """End the stream if it cannot continue after a long silence of its client."""

    # Events of the client; none of these may raise.

    def on_data(self, data: memoryview) -> None:
        """Data of the client, to be copied or used before this returns.

        They are the last if `was_ended`; on_end() is not called then.
        """

    def room(self) -> memoryview:
        """Return memory for the next data; an empty view if on_data() takes them."""
        return frames.NOTHING

    def on_filled(self, size: int) -> None:
        """The client's data was written into room()."""

    def on_end(self) -> None:
        """The end of the client's data, which has come after them."""

    def on_reset(self) -> None:
        """The client has gone, or wants no response; nothing more can be sent."""

    def on_sent(self) -> None:
        """All data of the stream have been sent to the connection."""


class Sending:
    def __init__(self, wake: Callable[[], object]) -> None:
        #: Called when the first bytes get into an empty `out`, so that its owner sends them.
        self._wake = wake
        #: The owner is at work here and sends `out` before it leaves, so it is not woken.
        self.is_attended = False
        self.streams: dict[int, Http2Stream] = {}
        #: Numbers of streams that have ended here before the client had sent all, oldest first.
        self.left_early: dict[int, None] = {}
        #: Frames that are ready to be sent, and their size in bytes.
        self.out: list[bytes | memoryview] = []
        self.out_bytes = 0
        #: Bytes that are booked for all open streams.
        self.kept_bytes = 0
        #: Bytes of data that wait in streams, for window or for their turn.
        self.waiting_bytes = 0
        #: Number of times that headers or data were sent; a ping after new ones is no strike.
        self.sent_count = 0
        #: Bytes of data that have waited in streams and since become frames.
        self.prepared_bytes = 0
        #: The client does not read what has been sent.
        self.is_paused = False
        #: The initial window of streams towards the client, and how large its frames may be.
        self.first_window = frames.DEFAULT_WINDOW
        self.frame_size = frames.DEFAULT_FRAME_SIZE
        #: Bytes that the server may send on all streams together: the connection's window.
        self.window = frames.DEFAULT_WINDOW
        #: Streams with data and room for some.
        self.turns: deque[Http2Stream] = deque()

    def take_output(self) -> list[bytes | memoryview]:
        """Return the frames to send, in order; afterwards, if `turns` has streams, call go_on()."""
        out, self.out, self.out_bytes = self.out, [], 0
        return out

    def write(self, data: bytes) -> None:
        if not self.out and not self.is_attended:
            self._wake()
        self.out.append(data)
        self.out_bytes += len(data)

    # ---------------------------------------------------------------- answers

    def answer(self, stream: Http2Stream, head: bytes, pieces: Pieces, tail: bytes) -> None:
        """Send a whole response: headers, data, trailers."""
        size, number = sum(map(len, pieces)), stream.id
        if (
            size > _JOINED_BYTES
            or size > self.frame_size
            or size > stream.window
            or size > self.window
            or self.is_paused
            or self.turns
        ):
            self.begin(stream, head)
            self.send(stream, pieces)
            self.finish(stream, tail)
            return
        self.sent_count += 1
        stream.window -= size
        self.window -= size
        stream.has_ended = True
        header = frames.HEADER.pack
        self.write(
            b"".join(
                (
                    header(len(head) >> 8, len(head) & 255, 1, 4, number),
                    head,
                    header(size >> 8, size & 255, 0, 0, number),
                    *pieces,
                    header(len(tail) >> 8, len(tail) & 255, 1, _HEADERS_END, number),
                    tail,
                )
            )
        )
        self.forget(stream, resets=True)

    def begin(self, stream: Http2Stream, block: bytes) -> None:
        """Send the headers of a response; its data follow."""
        self.sent_count += 1
        self.write(frames.header(len(block), frames.HEADERS, frames.END_HEADERS, stream.id) + block)

    def send(self, stream: Http2Stream, pieces: Pieces) -> None:
        """Send data of a stream; unsent data waits in `outgoing` until on_sent()."""
        if stream.has_ended:
            return
        size = sum(map(len, pieces))
        if (
            size <= _JOINED_BYTES
            and not stream.outgoing
            and size <= stream.window
            and size <= self.window
            and size <= self.frame_size
            and not self.is_paused
            and not self.turns
        ):
            self.sent_count += 1
            stream.window -= size
            self.window -= size
            header = frames.HEADER.pack(size >> 8, size & 255, frames.DATA, 0, stream.id)
            self.write(b"".join((header, *pieces)))
            return
        outgoing = stream.outgoing
        if outgoing is None:
            outgoing = stream.outgoing = deque()
        if size <= _COPIED_BYTES:
            # each piece that waits takes hundreds of bytes beside its own
            has_room = outgoing and len(outgoing[-1]) + size <= _COPIED_BYTES
            pieces = (b"".join((outgoing.pop() if has_room else b"", *pieces)),)
        outgoing.extend(memoryview(piece) for piece in pieces if piece)
        stream.outgoing_bytes += size
        self.waiting_bytes += size
        self.has_room(stream)

    def finish(self, stream: Http2Stream, block: bytes) -> None:
        """Send the trailers, after all unsent data."""
        if stream.has_ended:
            return
        stream.has_ended = True
        if stream.outgoing:
            stream.trailers = block
        else:
            self._end(stream, block)

    def _end(self, stream: Http2Stream, block: bytes) -> None:
        self.sent_count += 1
        self.write(frames.header(len(block), frames.HEADERS, _HEADERS_END, stream.id) + block)
        self.forget(stream, resets=True)

    def reset(self, stream: Http2Stream, code: int) -> None:
        """Reset a stream, without a status of gRPC."""
        if stream.is_open:
            self.write(frames.reset(stream.id, code))
            self.forget(stream)

    def leave_early(self, number: int) -> None:
        """Remember a stream that has ended here, although its client may still send data on it."""
        self.left_early[number] = None
        if len(self.left_early) > _MAX_LEFT_EARLY:
            del self.left_early[next(iter(self.left_early))]

    def forget(self, stream: Http2Stream, *, resets: bool = False) -> None:
        """Forget a stream that has ended; reset it if its client need not send the rest."""
        if not stream.was_ended:
            if resets:
                self.write(frames.reset(stream.id, frames.NO_ERROR))
            self.leave_early(stream.id)
        stream.is_open = False
        stream.has_ended = True
        if stream.outgoing:
            stream.outgoing.clear()
            self.waiting_bytes -= stream.outgoing_bytes
            stream.outgoing_bytes = 0
        self.kept_bytes -= stream.kept_bytes
        stream.kept_bytes = 0
        self.streams.pop(stream.id, None)

    # ------------------------------------------------------------------- turns

    def has_room(self, stream: Http2Stream) -> None:
        """Give a stream its turn if it has data and the client's window has room, and send."""
        if stream.outgoing and stream.window > 0 and not stream.has_turn:
            stream.has_turn = True
            self.turns.append(stream)
        self.go_on()

    def go_on(self) -> None:
        """Send all data that the windows allow."""
        turns = self.turns
        while turns and self.window > 0 and not self.is_paused and self.out_bytes < _MAX_READY:
            stream = turns.popleft()
            stream.has_turn = False
            if not stream.is_open:
                continue
            self._take_turn(stream)
            if stream.outgoing:
                if stream.window > 0:
                    stream.has_turn = True
                    turns.append(stream)
            elif stream.trailers is not None:
                self._end(stream, stream.trailers)
            else:
                stream.on_sent()

    def _take_turn(self, stream: Http2Stream) -> None:
        left = min(stream.window, self.window, _TURN_BYTES if self.turns else _MAX_READY)
        while left > 0 and stream.outgoing:
            self.sent_count += 1
            size = min(stream.outgoing_bytes, left, self.frame_size)
            self.write(frames.header(size, frames.DATA, 0, stream.id))
            self._move(stream.outgoing, size)
            left -= size
            stream.window -= size
            stream.outgoing_bytes -= size
            self.waiting_bytes -= size
            self.prepared_bytes += size
            self.window -= size

    def _move(self, waiting: deque[memoryview], size: int) -> None:
        """Move `size` waiting bytes, in any pieces, into the data of one frame."""
        self.out_bytes += size
        while size:
            data = waiting.popleft()
            if len(data) > size:
                waiting.appendleft(data[size:])
                data = data[:size]
            self.out.append(data if len(data) > _COPIED_BYTES else bytes(data))
            size -= len(data)
