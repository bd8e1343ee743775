"""Frames that a seed decides, between us and h2, which is written by others.

Where h2 is the client both must agree about what was sent, and how much more may be. What h2
refuses as a server we refuse, too.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

from tests.frontends.http2.talk import Heard, Talk
from tests.support import raw_http2 as h2
from tests.support.quick import every
from zmqtriton_frontends.http2 import frames
from zmqtriton_frontends.http2.budget import PingRules
from zmqtriton_frontends.http2.header_blocks import literal, status

h2_config: Any = pytest.importorskip("h2.config")
h2_connection: Any = pytest.importorskip("h2.connection")
h2_events: Any = pytest.importorskip("h2.events")
h2_exceptions: Any = pytest.importorskip("h2.exceptions")

SEEDS, STEPS = range(60), 60
REQUEST = [(":method", "POST"), (":scheme", "http"), (":path", "/a.B/C"), (":authority", "x")]
HEAD, TAIL = status(200), literal([(b"grpc-status", b"0")])
#: Pings are no attack here.
PINGS = PingRules(0.0)
_FIRST_WINDOW, _FRAME_SIZE = 4, 5


class Pair:
    """A client of h2's, our server, and what each has sent to the other by streams."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.talk = Talk(b"", pings=PINGS)
        self.client = h2_connection.H2Connection(h2_config.H2Configuration(client_side=True))
        self.requests: dict[int, bytes] = {}
        self.answered: dict[int, bytes] = {}
        self.heard: dict[int, bytes] = {}
        #: Streams that the client may send more on, those that have ended well, and the others.
        self.sending: set[int] = set()
        self.ended: set[int] = set()
        self.reset: set[int] = set()
        self.client.initiate_connection()
        self.carry()

    def carry(self) -> None:
        """Carry bytes to and fro until there are none, in pieces of any size."""
        connection = self.talk.connection
        while True:
            connection.go_on()
            to_us = self.client.data_to_send()
            to_client = b"".join(map(bytes, connection.take_output()))
            if not to_us and not to_client:
                return
            for piece in self._cut(to_us):
                connection.receive(memoryview(piece))
            for piece in self._cut(to_client):
                for event in self.client.receive_data(piece):
                    self._hear(event)

    def _cut(self, data: bytes) -> list[bytes]:
        ends = sorted(self.chance.randrange(len(data) + 1) for _ in range(self.chance.randrange(4)))
        return [data[at:to] for at, to in zip([0, *ends], [*ends, len(data)], strict=True)]

    def _hear(self, event: Any) -> None:
        assert not isinstance(event, h2_events.ConnectionTerminated), event
        if isinstance(event, h2_events.DataReceived):
            self.heard[event.stream_id] = self.heard.get(event.stream_id, b"") + event.data
        elif isinstance(event, h2_events.StreamEnded):
            self.ended.add(event.stream_id)
        elif isinstance(event, h2_events.StreamReset):
            self.sending.discard(event.stream_id)
            # which only says that the client need not send the rest
            if event.error_code != frames.NO_ERROR:
                self.reset.add(event.stream_id)

    # ----------------------------------------------------------------- what they do

    def begin(self) -> None:
        number = self.client.get_next_available_stream_id()
        more = [(f"k{self.chance.randrange(9)}", "v" * self.chance.randrange(200))]
        is_last = self.chance.random() < 0.2
        self.client.send_headers(number, REQUEST + more, end_stream=is_last)
        self.requests[number] = b""
        if not is_last:
            self.sending.add(number)

    def ask(self) -> None:
        number = self._any(self.sending)
        room = min(
            self.client.local_flow_control_window(number), self.client.max_outbound_frame_size
        )
        data = self.chance.randbytes(min(room, self.chance.choice((0, 1, 100, 16_384, 60_000))))
        padding = self.chance.choice((None, 0, 7)) if len(data) + 8 <= room else None
        is_last = self.chance.random() < 0.3
        self.client.send_data(number, data, end_stream=is_last, pad_length=padding)
        self.requests[number] += data
        if is_last:
            self.sending.discard(number)

    def leave(self) -> None:
        number = self._any(self.sending)
        self.client.reset_stream(number, 8)
        self.sending.discard(number)
        self.reset.add(number)

    def widen(self) -> None:
        number = self._any(self._open() & {*self.requests} - self.ended - self.reset)
        size = self.chance.choice((1, 1000, 100_000))
        self.client.increment_flow_control_window(size, self.chance.choice((None, number)))

    def change(self) -> None:
        changes = {_FIRST_WINDOW: self.chance.choice((0, 1, 1000, 65_535, 200_000))}
        if self.chance.random() < 0.5:
            changes[_FRAME_SIZE] = self.chance.choice((16_384, 20_000, 1 << 20))
        self.client.update_settings(changes)

    def ping(self) -> None:
        self.client.ping(self.chance.randbytes(8))

    def answer(self) -> None:
        stream = self._stream()
        if stream.id not in self.answered:
            self.answered[stream.id] = b""
            self.talk.connection.begin(stream, HEAD)
        data = self.chance.randbytes(self.chance.choice((0, 5, 4000, 70_000)))
        self.answered[stream.id] += data
        self.talk.connection.send(stream, [data[:100], data[100:]])

    def finish(self) -> None:
        self._finish(self._stream())

    def _finish(self, stream: Heard) -> None:
        self.talk.connection.finish(stream, TAIL if stream.id in self.answered else HEAD + TAIL)

    def refuse(self) -> None:
        stream = self._stream()
        self.talk.connection.reset(stream, frames.CANCEL)
        self.sending.discard(stream.id)
        self.reset.add(stream.id)

    def _any(self, numbers: set[int]) -> int:
        return self.chance.choice(sorted(numbers))

    def _open(self) -> set[int]:
        return {n for n, stream in self.talk.streams.items() if stream.is_open}

    def _stream(self) -> Heard:
        unanswered = {n for n in self._open() if not self.talk.streams[n].has_ended}
        return self.talk.streams[self._any(unanswered)]

    # ---------------------------------------------------------------------- checks

    def step(self) -> None:
        kinds = (self.begin, self.ask, self.ask, self.widen, self.change, self.ping)
        rarer = (self.answer, self.answer, self.finish, self.leave, self.refuse)
        try:
            self.chance.choice((*kinds, *rarer))()
        except IndexError:  # there is no stream for it
            self.begin()

    def check_windows(self) -> None:
        connection = self.talk.connection
        # what both sides believe must agree at every step
        assert connection._credit == self.client.outbound_flow_control_window
        assert connection.window == self.client.inbound_flow_control_window
        for number in self._open() - self.reset:
            stream = self.talk.streams[number]
            if number in self.sending:
                # as what is sent next goes by both
                ours = min(connection._credit, stream.credit)
                assert ours == self.client.local_flow_control_window(number)
            if not stream.has_ended:
                theirs = self.client.remote_flow_control_window(number)
                assert min(connection.window, stream.window) == theirs

    def end_all(self) -> None:
        """Let everything that was begun come to its end."""
        self.client.update_settings({_FIRST_WINDOW: 1 << 24})
        self.client.increment_flow_control_window(1 << 28)
        self.carry()
        for number in sorted(self.sending):
            self.client.end_stream(number)
        self.sending.clear()
        self.carry()
        for number in sorted(self._open()):
            self._finish(self.talk.streams[number])
        self.carry()


@pytest.mark.parametrize("seed", every(6, SEEDS))
def test_what_a_client_of_others_and_we_say_to_each_other_arrives(seed: int) -> None:
    pair = Pair(seed)

    for _ in range(STEPS):
        pair.step()
        if pair.chance.random() < 0.5:
            pair.carry()
            pair.check_windows()
    pair.end_all()

    assert not pair.talk.connection.is_over
    assert not pair.talk.connection.streams
    assert {*pair.requests} == pair.ended | pair.reset
    for number, stream in pair.talk.streams.items():
        if number in pair.reset:
            assert pair.requests[number].startswith(stream.data)
            assert pair.answered.get(number, b"").startswith(pair.heard.get(number, b""))
        else:
            if "end" in stream.events:
                assert pair.requests[number] == stream.data
            assert pair.requests[number].startswith(stream.data)  # we may end it before its client
            assert pair.answered.get(number, b"") == pair.heard.get(number, b"")


# ---------------------------------------------------------------------- what may not be


def _settings(setting: int, value: int) -> bytes:
    return h2.frame(h2.SETTINGS, 0, 0, struct.pack(">HI", setting, value))


#: By what is wrong; stream 1 is open then, and 3 the next one.
WRONG: dict[str, Callable[[random.Random], bytes]] = {
    "DATA on no stream": lambda _: h2.frame(h2.DATA, 0, 0, b"x"),
    "DATA on an idle stream": lambda c: h2.frame(h2.DATA, 0, 2 * c.randrange(3, 999) + 1, b"x"),
    "DATA that are all padding": lambda c: h2.frame(h2.DATA, 8, 1, bytes((c.randrange(9, 255), 1))),
    "HEADERS on an even stream": lambda c: h2.headers_frame(2 * c.randrange(1, 999), "/a.B/C"),
    "HEADERS on no stream": lambda _: h2.headers_frame(0, "/a.B/C"),
    "HEADERS with too much padding": lambda c: h2.frame(
        h2.HEADERS, 0xC, 3, bytes((c.choice((9, 99)),))
    ),
    "a block that is cut off": lambda c: h2.frame(
        h2.HEADERS, 4, 3, b"\x40" + bytes((c.randrange(9, 99),))
    ),
    "an entry that is not in the table": lambda c: h2.frame(
        h2.HEADERS, 4, 3, bytes((c.randrange(200, 254),))
    ),
    "another frame amid headers": lambda _: (
        h2.headers_frame(3, "/a.B/C", 0) + h2.frame(h2.PING, 0, 0, bytes(8))
    ),
    "headers of others amid headers": lambda _: (
        h2.headers_frame(3, "/a", 0) + h2.frame(h2.CONTINUATION, 4, 5)
    ),
    "CONTINUATION of nothing": lambda _: h2.frame(h2.CONTINUATION, 4, 1, b"\x82"),
    "PRIORITY on no stream": lambda _: h2.frame(2, 0, 0, bytes(5)),
    "RST_STREAM of another length": lambda c: h2.frame(h2.RESET, 0, 1, bytes(c.choice((0, 3, 5)))),
    "SETTINGS on a stream": lambda _: h2.frame(h2.SETTINGS, 0, 1),
    "SETTINGS of another length": lambda c: h2.frame(h2.SETTINGS, 0, 0, bytes(c.choice((1, 5, 7)))),
    "an ACK with settings": lambda _: h2.frame(h2.SETTINGS, 1, 0, bytes(6)),
    "a window that is too large": lambda c: _settings(4, c.randrange(2**31, 2**32)),
    "a frame size that is none": lambda c: _settings(5, c.choice((0, 16_383, 2**24))),
    "a push that is no truth value": lambda c: _settings(2, c.randrange(2, 99)),
    "PUSH_PROMISE": lambda _: h2.frame(5, 4, 1, struct.pack(">I", 2) + h2.header_block("/a.B/C")),
    "PING on a stream": lambda _: h2.frame(h2.PING, 0, 1, bytes(8)),
    "PING of another length": lambda c: h2.frame(h2.PING, 0, 0, bytes(c.choice((0, 7, 9)))),
    "GOAWAY on a stream": lambda _: h2.frame(h2.GOAWAY, 0, 1, bytes(8)),
    "GOAWAY of another length": lambda c: h2.frame(h2.GOAWAY, 0, 0, bytes(c.choice((0, 7)))),
    "a window of nothing": lambda _: h2.frame(h2.WINDOW, 0, 0, bytes(4)),
    "WINDOW_UPDATE of another length": lambda c: h2.frame(
        h2.WINDOW, 0, 0, bytes(c.choice((0, 3, 5)))
    ),
    "WINDOW_UPDATE on an idle stream": lambda c: h2.frame(
        h2.WINDOW, 0, 2 * c.randrange(3, 99) + 1, b"\0\0\0\1"
    ),
    "windows beyond the largest": lambda _: h2.frame(h2.WINDOW, 0, 0, b"\x7f\xff\xff\xff"),
    "a frame that is too large": lambda c: h2.frame(c.choice((4, 6, 8)), 0, 0, bytes(16_385 * 64)),
    "a stream that is smaller than the last": lambda _: (
        h2.headers_frame(9, "/a") + h2.headers_frame(7, "/a")
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_server_of_others_refuses_we_refuse(name: str) -> None:
    for seed in range(5):
        chance = random.Random(seed)
        before = [h2.PREFACE, h2.settings_frame({}), h2.headers_frame(1, "/a.B/C")]
        before += [h2.frame(h2.PING, 0, 0, chance.randbytes(8)) for _ in range(chance.randrange(3))]
        before.append(h2.frame(h2.DATA, 0, 1, bytes(chance.randrange(1, 100))))
        server = h2_connection.H2Connection(h2_config.H2Configuration(client_side=False))
        talk = Talk(b"", pings=PINGS)
        server.initiate_connection()
        server.receive_data(b"".join(before))
        talk.send(*before)
        talk.frames()
        assert not talk.connection.is_over

        wrong = WRONG[name](chance)
        with pytest.raises(h2_exceptions.ProtocolError):
            server.receive_data(wrong)
        talk.send(wrong)

        assert {frame.kind for frame in talk.frames()} & {frames.GOAWAY, frames.RST_STREAM}, seed
