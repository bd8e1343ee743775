"""A connection without a socket: what a client sends goes in, frames come out."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import hpack

from tests.support import raw_http2 as h2
from zmqtriton_frontends.http2 import frames
from zmqtriton_frontends.http2.budget import PingRules
from zmqtriton_frontends.http2.connection import Begin, Http2Connection, Rules
from zmqtriton_frontends.http2.header_blocks import Headers
from zmqtriton_frontends.http2.stream import Http2Stream

REQUEST = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/a.B/C"),
    ("content-type", "application/grpc"),
]


END = h2.END_HEADERS | h2.END_STREAM


def window(stream: int, more: int) -> bytes:
    return h2.frame(h2.WINDOW, 0, stream, struct.pack(">I", more))


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes


class Heard(Http2Stream):
    """Keeps what happened to it."""

    def __init__(self, connection: Http2Connection, number: int, headers: Headers) -> None:
        super().__init__(connection, number)
        self.headers = headers
        self.events = ["begin"]
        self.data = b""
        #: Where it wants its data.
        self.place = memoryview(b"")

    def on_data(self, data: memoryview) -> None:
        self.data += data
        if self.was_ended:
            self.on_end()

    def room(self) -> memoryview:
        return self.place

    def on_filled(self, size: int) -> None:
        self.place = self.place[size:]

    def on_end(self) -> None:
        self.events.append("end")

    def on_reset(self) -> None:
        self.events.append("reset")

    def on_sent(self) -> None:
        self.events.append("sent")


class Talk:
    """Both sides; introduced unless the test does that itself."""

    def __init__(
        self,
        first: bytes = h2.PREFACE + h2.settings_frame({}),
        max_streams: int = 100,
        pings: PingRules = PingRules(),  # noqa: B008 - cannot change
    ) -> None:
        self.now = 1000.0
        self.wakes = 0
        self.streams: dict[int, Heard] = {}
        rules = Rules(max_streams, pings)
        self.connection = Http2Connection(self._read, self._wake, rules, lambda: self.now)
        self.encoder = hpack.Encoder()
        if first:
            self.send(first)
            self.frames()

    def _read(self, headers: Headers) -> Begin:
        def begin(connection: Http2Connection, number: int) -> Http2Stream:
            self.streams[number] = stream = Heard(connection, number, headers)
            return stream

        return begin

    def _wake(self) -> None:
        self.wakes += 1

    def send(self, *data: bytes) -> None:
        self.connection.receive(memoryview(b"".join(data)))

    def open(self, number: int, *, flags: int = h2.END_HEADERS, **more: str) -> Heard:
        """A stream that the client has begun."""
        self.send(h2.frame(h2.HEADERS, flags, number, self.block(**more)))
        return self.streams[number]

    def block(self, **more: str) -> bytes:
        return bytes(self.encoder.encode([*REQUEST, *more.items()]))

    def frames(self) -> list[Frame]:
        """Return what the server has sent since the last call."""
        return frames_of(b"".join(bytes(piece) for piece in self.connection.take_output()))

    def frames_to_the_end(self) -> list[Frame]:
        """The same, as often as there is more."""
        received = self.frames()
        while True:
            self.connection.go_on()
            more = self.frames()
            if not more:
                return received
            received += more

    def goaway(self) -> tuple[int, bytes]:
        """Code and text of the one that ended the connection."""
        payload = next(frame.payload for frame in self.frames() if frame.kind == frames.GOAWAY)
        return int.from_bytes(payload[4:8], "big"), payload[8:]


def frames_of(data: bytes) -> list[Frame]:
    messages, position = [], 0
    while position < len(data):
        size = int.from_bytes(data[position : position + 3], "big")
        kind, flags, number = struct.unpack(">BBI", data[position + 3 : position + 9])
        messages.append(Frame(kind, flags, number, data[position + 9 : position + 9 + size]))
        position += 9 + size
    assert position == len(data)
    return messages


def data_of(messages: list[Frame], number: int) -> bytes:
    return b"".join(f.payload for f in messages if (f.kind, f.stream) == (frames.DATA, number))


def kinds(messages: list[Frame]) -> list[Any]:
    return [(frame.kind, frame.stream) for frame in messages]
