from __future__ import annotations

import random
import struct
from functools import partial

import pytest

from tests.frontends.http2.talk import END, REQUEST, Frame, Heard, Talk, kinds, window
from tests.support import raw_http2 as h2
from zmqtriton_frontends.http2 import frames
from zmqtriton_frontends.http2.budget import PingRules
from zmqtriton_frontends.http2.connection import CONNECTION_WINDOW_BYTES
from zmqtriton_frontends.http2.header_blocks import literal
from zmqtriton_frontends.http2.stream import WINDOW_BYTES

# ----------------------------------------------------------------- introduction


def test_the_server_introduces_itself_first() -> None:
    talk = Talk(first=b"")

    sent = talk.frames()

    assert [(frames.SETTINGS, 0), (frames.WINDOW_UPDATE, 0)] == kinds(sent)
    settings = dict(frames.read_settings(sent[0].payload))
    assert 100 == settings[frames.MAX_CONCURRENT_STREAMS]
    assert WINDOW_BYTES == settings[frames.INITIAL_WINDOW_SIZE]
    assert not talk.connection.has_begun


@pytest.mark.parametrize(
    "first",
    [b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSX", h2.PREFACE + h2.frame(h2.PING, 0, 0)],
)
def test_who_does_not_speak_http2_is_told_to_go(first: bytes) -> None:
    talk = Talk(first=b"")

    talk.send(first)

    assert talk.connection.is_done
    assert frames.PROTOCOL_ERROR == talk.goaway()[0]


# ---------------------------------------------------------- what comes for nothing


_MANY = 2000
_PAIR = b"\x00\x01a\x7f\x00" + b"b" * 127
_OPENINGS = {number: h2.headers_frame(number, "/x") for number in range(3, 30_000, 2)}
FLOODS = {
    "settings": h2.settings_frame({4: 65_535}) * _MANY,
    "empty data": h2.frame(h2.DATA, 0, 1) * _MANY,
    "unknown frames": h2.frame(0x77, 0, 0, b"?") * _MANY,
    "priorities": h2.frame(2, 0, 1, bytes(5)) * _MANY,
    "trailers of nothing": h2.headers_frame(1, "/x") * _MANY,
    "continuations": h2.headers_frame(3, "/x", flags=0)
    + h2.frame(h2.CONTINUATION, 0, 3, _PAIR * 8) * _MANY,
    "empty continuations": h2.headers_frame(3, "/x", flags=0)
    + h2.frame(h2.CONTINUATION, 0, 3) * _MANY,
    "resets": b"".join(opening + h2.reset_frame(n) for n, opening in _OPENINGS.items()),
    "refused streams": b"".join(_OPENINGS.values()),
    "pings": h2.frame(h2.PING, 0, 0, bytes(8)) * _MANY,
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_ends_the_connection(talk: Talk, stream: Heard, name: str) -> None:
    if name == "trailers of nothing":
        talk.connection.reset(stream, frames.CANCEL)

    talk.send(FLOODS[name])

    assert talk.connection.is_done
    assert frames.ENHANCE_YOUR_CALM == talk.goaway()[0]


def test_headers_that_unpack_to_too_much_end_the_connection(talk: Talk) -> None:
    value = b"\x7f\xbd\x1d" + b"v" * 3900
    bomb = h2.header_block("/x") + b"\x40\x01a" + value + b"\xbe" * 8000

    talk.send(h2.frame(h2.HEADERS, h2.END_HEADERS, 1, bomb))

    assert (frames.ENHANCE_YOUR_CALM, b"too many headers") == talk.goaway()


# ------------------------------------------------------------------------- pings


def ping(opaque: bytes = bytes(8)) -> bytes:
    return h2.frame(h2.PING, 0, 0, opaque)


@pytest.mark.row(
    "--grpc-http2-min-recv-ping-interval-without-data", "--grpc-http2-max-ping-strikes"
)
@pytest.mark.parametrize(
    ("rules", "gap_s", "has_call", "goes_on"),
    [
        (PingRules(), 299.0, True, False),
        (PingRules(), 301.0, True, True),
        (PingRules(), 301.0, False, False),
        (PingRules(without_calls=True), 301.0, False, True),
        (PingRules(strikes=0), 0.0, False, True),
        (PingRules(interval_s=1.0), 2.0, True, True),
        (PingRules(strikes=3), 299.0, True, True),
    ],
)
def test_pings_may_come_as_often_as_the_rules_say(
    rules: PingRules, gap_s: float, has_call: bool, goes_on: bool
) -> None:
    talk = Talk(pings=rules)
    if has_call:
        talk.open(1)

    for _ in range(4):
        talk.send(ping())
        talk.now += gap_s

    assert goes_on == (not talk.connection.is_done)
    if not goes_on:
        assert (frames.ENHANCE_YOUR_CALM, b"too_many_pings") == talk.goaway()


def test_after_anything_new_was_sent_pings_are_counted_anew(talk: Talk) -> None:
    connection, (first, second, third) = talk.connection, map(talk.open, (1, 3, 5))
    talk.send(ping(), ping(), ping())
    for send in (
        partial(connection.begin, first, b"h"),
        partial(connection.send, first, [b"data"]),
        partial(connection.answer, second, b"h", [b"data"], b"t"),
        partial(connection.finish, third, b"t"),
        partial(connection.send, first, [bytes(100_000)]),
    ):
        send()
        talk.send(ping(), ping(), ping())
        assert not connection.is_done


# ----------------------------------------------------------------------- leaving


def test_a_client_that_is_to_leave_may_finish_and_then_the_connection_is_done(talk: Talk) -> None:
    before = talk.open(1, flags=END)

    talk.connection.leave()
    first, ping = talk.frames()
    assert (frames.GOAWAY, 2**31 - 1) == (first.kind, int.from_bytes(first.payload[:4], "big"))
    talk.send(h2.frame(h2.PING, frames.ACK, 0, bytes(8)))  # of another ping: it has heard nothing
    meanwhile = talk.open(3, flags=END)
    talk.send(h2.frame(h2.PING, frames.ACK, 0, ping.payload))
    second = talk.frames()[0]
    assert (frames.GOAWAY, 3) == (second.kind, int.from_bytes(second.payload[:4], "big"))
    talk.send(h2.frame(h2.HEADERS, END, 5, talk.block()))
    assert [(frames.RST_STREAM, 5)] == kinds(talk.frames())

    for stream in (before, meanwhile):
        assert not talk.connection.is_done
        talk.connection.answer(stream, b"h", (b"p", b"d"), b"t")
    assert talk.connection.is_done


# ------------------------------------------------------------ room for the client


def test_a_message_that_fits_into_the_room_there_is_needs_no_more_of_it(
    talk: Talk, stream: Heard
) -> None:
    sizes = [WINDOW_BYTES // 16] * 15

    for done, size in enumerate(sizes, 1):
        stream.expected = sum(sizes[done:])
        talk.send(h2.frame(h2.DATA, 0, 1, bytes(size)))
        if stream.expected:
            assert [] == talk.frames()

    assert [Frame(frames.WINDOW_UPDATE, 0, 1, struct.pack(">I", sum(sizes)))] == talk.frames()


def test_a_stream_that_wants_no_more_gives_no_room_until_it_does(talk: Talk, stream: Heard) -> None:
    window_of_data = h2.frame(h2.DATA, 0, 1, bytes(16_384)) * (WINDOW_BYTES // 16_384)
    stream.is_holding = True
    talk.send(window_of_data)
    assert [] == [f for f in talk.frames() if f.stream == 1]

    stream.is_holding = False
    talk.connection.give_credit(stream)
    assert [Frame(frames.WINDOW_UPDATE, 0, 1, struct.pack(">I", WINDOW_BYTES))] == talk.frames()

    stream.is_holding = True
    talk.send(window_of_data, h2.frame(h2.DATA, 0, 1, b"x"))
    refused = Frame(frames.RST_STREAM, 0, 1, struct.pack(">I", frames.FLOW_CONTROL_ERROR))
    assert refused in talk.frames()
    assert not talk.connection.is_done


def test_data_of_streams_that_have_ended_do_not_use_the_connection_up(talk: Talk) -> None:
    talk.connection.reset(talk.open(1), frames.CANCEL)

    for _ in range(2 * CONNECTION_WINDOW_BYTES // 16_384):
        talk.send(h2.frame(h2.DATA, 0, 1, bytes(16_384)))

    assert not talk.connection.is_done


# ------------------------------------------------------------- straight to a stream


def test_data_may_be_written_where_a_stream_wants_them(talk: Talk, stream: Heard) -> None:
    place = memoryview(bytearray(1000))
    stream.place = place
    connection = talk.connection
    assert not connection.room()

    talk.send(h2.frame(h2.DATA, 8 | h2.END_STREAM, 1, b"\x04" + b"a" * 500 + bytes(4))[:110])
    assert b"a" * 100 == stream.data
    assert 400 == len(connection.room())
    connection.room()[:300] = b"b" * 300
    connection.filled(300)
    connection.room()[:100] = b"c" * 100
    connection.filled(100)

    assert b"b" * 300 + b"c" * 100 == bytes(place[:400])
    assert not connection.room()
    assert ["begin"] == stream.events
    talk.send(bytes(4), h2.frame(h2.PING, 0, 0, b"any body"))
    assert ["begin", "end"] == stream.events
    assert Frame(frames.PING, frames.ACK, 0, b"any body") in talk.frames()


# -------------------------------------------------------------------------- fuzz


@pytest.mark.parametrize("seed", range(10))
def test_a_frame_means_the_same_whole_and_in_pieces(seed: int) -> None:
    rng = random.Random(seed)
    sent = []
    for _ in range(60):
        number, flags = rng.choice((1, 3, 5)), rng.choice((*[0] * 20, *[8] * 5, 1))
        number = 7 if rng.random() < 0.01 else number  # of no stream
        data = rng.randbytes(rng.choice((0 if rng.random() < 0.1 else 10, 9, 16_384, 70_000)))
        sent.append(h2.frame(h2.DATA, flags, number, bytes([flags & rng.randrange(12)]) + data))
        sent.append(h2.frame(h2.PING, 0, 0, rng.randbytes(8)))
    whole, cut = b"".join(sent), rng.randrange(1, 40_000)
    heard = []
    for size in (len(whole), 64_000, cut):
        talk = Talk(pings=PingRules(strikes=0))
        streams = [talk.open(number) for number in (1, 3, 5)]
        for at in range(0, len(whole), size):
            talk.send(whole[at : at + size])
        heard.append((talk.frames(), [(s.data, s.events, s.credit) for s in streams]))

    assert heard[0] == heard[1] == heard[2]


@pytest.mark.parametrize("seed", range(5))
def test_frames_mean_the_same_in_one_turn_and_in_many(seed: int) -> None:
    chance = random.Random(seed)
    whole = b"".join(
        (
            h2.frame(h2.HEADERS, 0, 1, Talk().block()),
            h2.frame(h2.CONTINUATION, h2.END_HEADERS, 1),
            *(h2.frame(h2.DATA, 0, 1, bytes(chance.randrange(300))) for _ in range(100)),
            *(h2.frame(h2.DATA, 8, 1, b"\x02abc  ") for _ in range(20)),
            *(ping(chance.randbytes(8)) for _ in range(20)),
            h2.frame(h2.DATA, h2.END_STREAM, 1, b"the end"),
        )
    )
    heard = []
    for is_cut in (False, True):
        talk = Talk(pings=PingRules(strikes=0))
        position = turns = 0
        while position < len(whole):
            part = memoryview(whole[position : position + chance.randrange(1, 2000)])
            until = talk.now if is_cut and chance.random() < 0.7 else float("inf")
            left = talk.connection.receive(part, until)
            assert left < len(part)
            position += len(part) - left
            turns += 1
        heard.append((talk.frames(), talk.streams[1].data, talk.streams[1].events))

    assert heard[0] == heard[1]
    assert turns > 30


def test_what_waits_for_the_rest_of_its_frame_or_block_is_counted(talk: Talk) -> None:
    talk.send(h2.headers_frame(1, "/x", flags=0), h2.frame(h2.CONTINUATION, 0, 1, bytes(50))[:20])

    assert len(h2.header_block("/x")) + 20 == talk.connection.reading.held_bytes


@pytest.mark.slow
def test_no_bytes_break_the_machine() -> None:
    random.seed(20)
    ended = 0
    for _ in range(400):
        talk = Talk()
        for _ in range(random.randrange(60)):
            kind = random.choice((0, 0, 0, 1, 1, 2, 3, 4, 6, 7, 8, 8, 9, 11))
            size = random.choice((0, 1, 4, 4, 5, 6, 8, 8, 9, 40, 3000))
            payload = random.randbytes(size)
            if kind == 1 and random.random() < 0.9:
                payload = h2.header_block("/x")
            flags = random.choice((0, 1, 4, 5, 5, 8, 0x20, random.randrange(256)))
            number = random.choice((0, 1, 3, 5, 5, 7, 9, random.randrange(2**32)))
            whole = h2.frame(kind, flags, number, payload)
            cut = random.randrange(len(whole) + 1)
            talk.send(whole[:cut])
            talk.send(whole[cut:])
            for stream in list(talk.connection.streams.values()):
                if random.random() < 0.2:
                    talk.connection.answer(stream, b"h", (b"p", b"d" * size), b"t")
        ended += talk.connection.is_done
        assert len(talk.frames()) < 500
        for stream in talk.streams.values():
            assert 1 >= stream.events.count("reset")
            assert 1 >= stream.events.count("end")

    assert 0 < ended < 400


# ------------------------------------------------------------------- malformed messages


_PLAIN = [(name.encode(), value.encode()) for name, value in REQUEST]
_REGULAR = [(b"content-type", b"application/grpc")]
_METHOD, _SCHEME, _PATH = _PLAIN[:3]

#: By the section of RFC 9113 that says so.
MALFORMED = {
    "8.2: upper case": [*_PLAIN, (b"X-Name", b"v")],
    "8.2.1: a space in a name": [*_PLAIN, (b"a b", b"v")],
    "8.2.1: no name": [*_PLAIN, (b"", b"v")],
    "8.2.1: NUL in a value": [*_PLAIN, (b"k", b"a\0b")],
    "8.2.1: CR LF in a value": [*_PLAIN, (b"k", b"a\r\nb: c")],
    "8.2.1: white space around a value": [_METHOD, _SCHEME, (b":path", b" /x"), *_REGULAR],
    "8.2.2: connection": [*_PLAIN, (b"connection", b"close")],
    "8.2.2: transfer-encoding": [*_PLAIN, (b"transfer-encoding", b"chunked")],
    "8.2.2: upgrade": [*_PLAIN, (b"upgrade", b"h2c")],
    "8.2.2: te": [*_PLAIN, (b"te", b"gzip")],
    "8.3: unknown": [_METHOD, _SCHEME, _PATH, (b":colour", b"red"), *_REGULAR],
    "8.3: of a response": [_METHOD, _SCHEME, _PATH, (b":status", b"200"), *_REGULAR],
    "8.3: misplaced": [_METHOD, _SCHEME, *_REGULAR, _PATH],
    "8.3: twice": [_METHOD, _METHOD, _SCHEME, _PATH, *_REGULAR],
    "8.3.1: no method": [_SCHEME, _PATH, *_REGULAR],
    "8.3.1: no scheme": [_METHOD, _PATH, *_REGULAR],
    "8.3.1: no path": [_METHOD, _SCHEME, *_REGULAR],
    "8.3.1: an empty path": [_METHOD, _SCHEME, (b":path", b""), *_REGULAR],
    "8.1.1: a length that is none": [*_PLAIN, (b"content-length", b"1x")],
    "8.1.1: two lengths": [*_PLAIN, (b"content-length", b"1"), (b"content-length", b"1")],
}


def _resets(talk: Talk) -> list[tuple[int, int]]:
    """Stream and code of each reset."""
    return [
        (frame.stream, int.from_bytes(frame.payload, "big"))
        for frame in talk.frames()
        if frame.kind == h2.RESET
    ]


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_request_is_reset_and_nothing_else(talk: Talk, name: str) -> None:
    talk.send(h2.frame(h2.HEADERS, h2.END_HEADERS, 1, literal(MALFORMED[name])))

    assert ([(1, frames.PROTOCOL_ERROR)], {}) == (_resets(talk), talk.streams)
    assert ["begin", "end"] == talk.open(3, flags=END).events


@pytest.mark.parametrize("flags", [0, h2.END_STREAM])
@pytest.mark.parametrize(("length", "is_right"), [(4, False), (5, True), (6, False)])
def test_a_length_must_be_that_of_the_data(
    talk: Talk, length: int, is_right: bool, flags: int
) -> None:
    headers = [*_PLAIN, (b"content-length", b"%d" % length)]
    talk.send(h2.frame(h2.HEADERS, h2.END_HEADERS, 1, literal(headers)))

    talk.send(h2.frame(h2.DATA, flags, 1, b"hello"))
    if not flags:
        talk.send(h2.frame(h2.DATA, h2.END_STREAM, 1))

    assert (["begin", "end"] if is_right else ["begin", "reset"]) == talk.streams[1].events
    assert ([] if is_right else [(1, frames.PROTOCOL_ERROR)]) == _resets(talk)


@pytest.mark.slow
def test_resets_that_a_client_causes_are_its_own(talk: Talk) -> None:
    talk.send(h2.settings_frame({}))
    # Each is refused for a window that overflows.
    overflow = struct.pack(">I", 2**31 - 1)
    for number in range(1, 60_000, 2):
        if talk.connection.is_done:
            break
        talk.send(
            h2.frame(h2.HEADERS, h2.END_HEADERS, number, talk.block()),
            h2.frame(h2.WINDOW, 0, number, overflow),
        )

    assert frames.ENHANCE_YOUR_CALM == talk.goaway()[0]


def test_data_written_to_their_place_may_be_the_last_reset_of_a_client(talk: Talk) -> None:
    talk.open(1)
    talk.send(h2.reset_frame(1) * 10_000)  # as many as a client has at once
    block = talk.block(**{"content-length": "600"})
    talk.send(h2.frame(h2.HEADERS, h2.END_HEADERS, 3, block))
    talk.streams[3].place = memoryview(bytearray(1000))
    talk.send(h2.frame(h2.DATA, h2.END_STREAM, 3, bytes(500))[:100])
    assert not talk.connection.fault

    talk.connection.filled(len(talk.connection.room()))

    assert talk.connection.fault
    assert talk.connection.fault.code == frames.ENHANCE_YOUR_CALM


def test_windows_of_streams_that_have_ended_cost_their_client(talk: Talk) -> None:
    talk.open(1)
    talk.send(h2.reset_frame(1))

    talk.send(h2.frame(h2.WINDOW, 0, 1, struct.pack(">I", 1)) * 2000)

    assert frames.ENHANCE_YOUR_CALM == talk.goaway()[0]


def test_streams_that_have_ended_keep_nothing(talk: Talk) -> None:
    before = talk.connection.kept_bytes

    for number in (1, 3, 5):
        talk.connection.reset(talk.open(number), frames.CANCEL)
        assert before == talk.connection.kept_bytes


def test_small_messages_that_wait_are_joined_and_stay_in_order(talk: Talk) -> None:
    """Hundreds of streams that are not read would take many times their bytes."""
    talk.send(h2.settings_frame({4: 0}))
    stream = talk.open(1)
    messages = [[b"%05d" % number, bytes(60)] for number in range(200)]

    for message in [*messages, [b"large", bytes(9000)]]:
        talk.connection.send(stream, message)

    assert 1 < len(stream.outgoing or ()) < 8
    talk.send(window(1, 1 << 20))
    sent = b"".join(f.payload for f in talk.frames_to_the_end() if f.kind == frames.DATA)
    assert b"".join(map(b"".join, messages)) + b"large" + bytes(9000) == sent


def with_streams(count: int) -> Talk:
    """Both sides of a connection with so many streams."""
    talk = Talk(max_streams=10_000)
    for number in range(1, 2 * count, 2):
        talk.open(number)
    return talk


def test_changing_all_windows_again_and_again_ends_the_connection() -> None:
    talk = with_streams(2000)

    for size in range(200):
        talk.send(h2.settings_frame({4: 1000 + size}))

    assert frames.ENHANCE_YOUR_CALM == talk.goaway()[0]
