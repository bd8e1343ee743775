from __future__ import annotations

import random
import struct

import pytest

from tests.frontends.http2.talk import END, REQUEST, Frame, Heard, Talk, kinds, window
from tests.support import raw_http2 as h2
from zmqtriton_frontends.http2 import frames
from zmqtriton_frontends.http2.budget import PingRules
from zmqtriton_frontends.http2.connection import CONNECTION_WINDOW_BYTES
from zmqtriton_frontends.http2.header_blocks import literal
from zmqtriton_frontends.http2.stream import WINDOW_BYTES, Http2Stream

# ----------------------------------------------------------------- introduction


def test_the_server_introduces_itself_first() -> None:
    talk = Talk(first=b"")

    sent = talk.frames()

    assert [(frames.SETTINGS, 0), (frames.WINDOW_UPDATE, 0)] == kinds(sent)
    settings = dict(frames.read_settings(sent[0].payload))
    assert 100 == settings[frames.MAX_CONCURRENT_STREAMS]
    assert WINDOW_BYTES == settings[frames.INITIAL_WINDOW_SIZE]
    assert not talk.connection.has_begun


def test_a_client_may_come_byte_by_byte() -> None:
    talk = Talk(first=b"")
    whole = (
        h2.PREFACE
        + h2.settings_frame({4: 100_000})
        + h2.frame(h2.HEADERS, h2.END_HEADERS, 1, talk.block())
        + h2.frame(h2.DATA, 8, 1, b"\x03hello\0\0\0")
        + h2.frame(h2.DATA, h2.END_STREAM, 1, b" you")
    )
    talk.frames()

    for at in range(len(whole)):
        talk.send(whole[at : at + 1])

    assert talk.connection.has_begun
    assert (["begin", "end"], b"hello you") == (talk.streams[1].events, talk.streams[1].data)
    assert [Frame(frames.SETTINGS, frames.ACK, 0, b"")] == talk.frames()


@pytest.mark.parametrize(
    "first",
    [b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSX", h2.PREFACE + h2.frame(h2.PING, 0, 0)],
)
def test_who_does_not_speak_http2_is_told_to_go(first: bytes) -> None:
    talk = Talk(first=b"")

    talk.send(first)

    assert talk.connection.is_done
    assert frames.PROTOCOL_ERROR == talk.goaway()[0]


# -------------------------------------------------------------------- requests


def test_headers_reach_the_stream_in_one_frame_or_several(talk: Talk) -> None:
    block = talk.block(k="v" * 50)

    talk.send(
        h2.frame(h2.HEADERS, h2.END_STREAM, 1, block[:5]),
        h2.frame(h2.CONTINUATION, 0, 1, block[5:9]),
        h2.frame(h2.CONTINUATION, h2.END_HEADERS, 1, block[9:]),
    )
    padded_with_priority = b"\x02" + bytes(5) + talk.block(k="w") + bytes(2)
    talk.send(h2.frame(h2.HEADERS, h2.END_HEADERS | 8 | 32, 3, padded_with_priority))

    assert (b"k", b"v" * 50) == talk.streams[1].headers[-1]
    assert (["begin", "end"], (b"k", b"w")) == (talk.streams[1].events, talk.streams[3].headers[-1])


def test_trailers_of_a_client_end_its_side(talk: Talk, stream: Heard) -> None:
    talk.send(h2.frame(h2.HEADERS, END, 1, bytes(talk.encoder.encode([("a", "b")]))))

    assert ["begin", "end"] == stream.events


def test_a_reset_reaches_the_stream_once(talk: Talk, stream: Heard) -> None:
    talk.send(h2.reset_frame(1), h2.reset_frame(1), window(1, 5))

    assert ["begin", "reset"] == stream.events
    assert not talk.connection.is_done


def test_what_was_on_its_way_to_a_stream_that_was_reset_is_dropped(
    talk: Talk, stream: Heard
) -> None:
    talk.connection.reset(stream, frames.CANCEL)

    talk.send(h2.data_frame(1, b"late"), h2.frame(h2.HEADERS, END, 1, talk.block()))

    assert b"" == stream.data
    assert not talk.connection.is_done


def test_more_streams_than_allowed_are_refused_and_others_go_on() -> None:
    talk = Talk(max_streams=2)
    for number in (1, 3):
        talk.open(number)

    talk.send(h2.frame(h2.HEADERS, END, 5, talk.block(k="kept in the table")))
    assert [Frame(frames.RST_STREAM, 0, 5, struct.pack(">I", 7))] == talk.frames()

    talk.send(h2.reset_frame(1))
    assert (b"k", b"kept in the table") in talk.open(7, k="kept in the table").headers


def test_a_second_end_is_refused_on_its_stream_alone(talk: Talk, call: Heard) -> None:
    talk.send(h2.frame(h2.DATA, 0, 1, b"x"))

    assert [Frame(frames.RST_STREAM, 0, 1, struct.pack(">I", frames.STREAM_CLOSED))] == (
        talk.frames()
    )
    assert ["begin", "end", "reset"] == call.events
    assert not talk.connection.is_done


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (h2.frame(h2.DATA, 0, 0, b"x"), frames.PROTOCOL_ERROR),
        (h2.frame(h2.DATA, 0, 5, b"x"), frames.PROTOCOL_ERROR),
        (h2.frame(h2.DATA, 8, 1, b"\x05abc"), frames.PROTOCOL_ERROR),
        (b"\xff\xff\xff\0\0\0\0\0\1", frames.FRAME_SIZE_ERROR),
        (h2.frame(h2.HEADERS, 4, 2, b""), frames.PROTOCOL_ERROR),
        (h2.frame(h2.HEADERS, 4, 0, b""), frames.PROTOCOL_ERROR),
        (h2.frame(h2.HEADERS, 4, 3, b"\xff" * 6), frames.COMPRESSION_ERROR),
        (h2.frame(h2.HEADERS, 4 | 8, 3, b""), frames.PROTOCOL_ERROR),
        (h2.frame(h2.HEADERS, 0, 3) + h2.frame(h2.PING, 0, 0, bytes(8)), frames.PROTOCOL_ERROR),
        (h2.frame(h2.HEADERS, 0, 3) + h2.frame(h2.DATA, 0, 1, b"x"), frames.PROTOCOL_ERROR),
        (h2.frame(h2.CONTINUATION, 4, 1), frames.PROTOCOL_ERROR),
        (h2.frame(h2.RESET, 0, 1, b"x"), frames.FRAME_SIZE_ERROR),
        (h2.reset_frame(0), frames.PROTOCOL_ERROR),
        (h2.reset_frame(9), frames.PROTOCOL_ERROR),
        (h2.frame(h2.SETTINGS, 0, 0, b"short"), frames.FRAME_SIZE_ERROR),
        (h2.frame(h2.SETTINGS, 1, 0, bytes(6)), frames.FRAME_SIZE_ERROR),
        (h2.frame(h2.SETTINGS, 0, 1), frames.PROTOCOL_ERROR),
        (h2.settings_frame({2: 2}), frames.PROTOCOL_ERROR),
        (h2.settings_frame({4: 2**31}), frames.FLOW_CONTROL_ERROR),
        (h2.settings_frame({5: 100}), frames.PROTOCOL_ERROR),
        (h2.frame(5, 0, 1, bytes(8)), frames.PROTOCOL_ERROR),
        (h2.frame(h2.PING, 0, 0, b"short"), frames.FRAME_SIZE_ERROR),
        (h2.frame(h2.GOAWAY, 0, 0, b"short"), frames.PROTOCOL_ERROR),
        (window(0, 0), frames.PROTOCOL_ERROR),
        (window(0, 2**31 - 1), frames.FLOW_CONTROL_ERROR),
        (window(7, 1), frames.PROTOCOL_ERROR),
        (h2.frame(h2.WINDOW, 0, 0, b"x"), frames.FRAME_SIZE_ERROR),
    ],
)
def test_a_broken_rule_ends_the_connection_with_its_code(
    talk: Talk, stream: Heard, sent: bytes, code: int
) -> None:
    talk.send(sent)

    assert talk.connection.is_done
    assert code == talk.goaway()[0]
    assert ["begin", "reset"] == stream.events
    talk.send(h2.settings_frame({}))
    assert [] == talk.frames()


@pytest.mark.parametrize(
    ("more", "code"), [(0, frames.PROTOCOL_ERROR), (2**31 - 1, frames.FLOW_CONTROL_ERROR)]
)
def test_a_wrong_window_of_a_stream_ends_that_stream(
    talk: Talk, stream: Heard, more: int, code: int
) -> None:
    talk.send(window(1, more))

    assert [Frame(frames.RST_STREAM, 0, 1, struct.pack(">I", code))] == talk.frames()
    assert ["begin", "reset"] == stream.events


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


def test_what_comes_slowly_is_no_flood(talk: Talk) -> None:
    talk.open(1)
    for _ in range(3000):
        talk.send(h2.settings_frame({4: 65_535}))
        talk.now += 0.01

    assert not talk.connection.is_done


def test_headers_that_unpack_to_too_much_end_the_connection(talk: Talk) -> None:
    value = b"\x7f\xbd\x1d" + b"v" * 3900
    bomb = h2.header_block("/x") + b"\x40\x01a" + value + b"\xbe" * 8000

    talk.send(h2.frame(h2.HEADERS, h2.END_HEADERS, 1, bomb))

    assert (frames.ENHANCE_YOUR_CALM, b"too many headers") == talk.goaway()


# ------------------------------------------------------------------------- pings


def ping(opaque: bytes = bytes(8)) -> bytes:
    return h2.frame(h2.PING, 0, 0, opaque)


def test_a_ping_is_answered_with_the_same(talk: Talk) -> None:
    talk.send(ping(b"12345678"))

    assert [Frame(frames.PING, frames.ACK, 0, b"12345678")] == talk.frames()


def test_pings_beside_answers_are_no_strikes(talk: Talk) -> None:
    for number in range(1, 41, 2):
        talk.connection.answer(talk.open(number, flags=END), b"h", (b"p", b"d"), b"t")
        talk.send(ping())

    assert not talk.connection.is_done


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


# ----------------------------------------------------------------------- leaving


def test_a_client_that_is_to_leave_may_finish_and_then_the_connection_is_done(talk: Talk) -> None:
    before = talk.open(1, flags=END)

    talk.connection.leave()
    first, ping = talk.frames()
    assert (frames.GOAWAY, 2**31 - 1) == (first.kind, int.from_bytes(first.payload[:4], "big"))
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


def test_a_client_gets_room_for_what_it_has_sent_and_not_more(talk: Talk, stream: Heard) -> None:
    room = WINDOW_BYTES

    for _ in range(200):
        assert room >= 16_000
        talk.send(h2.frame(h2.DATA, 0, 1, bytes(16_000)))
        room -= 16_000
        room += sum(
            int.from_bytes(f.payload, "big")
            for f in talk.frames()
            if f.kind == h2.WINDOW and f.stream
        )
        assert room <= WINDOW_BYTES

    assert 200 * 16_000 == len(stream.data)


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


def test_a_stream_that_is_gone_wants_nothing(talk: Talk, stream: Heard) -> None:
    stream.place = memoryview(bytearray(1000))
    talk.send(h2.frame(h2.DATA, 0, 1, bytes(500))[:100])
    assert talk.connection.room()

    talk.connection.reset(stream, frames.CANCEL)

    assert not talk.connection.room()


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


def test_a_turn_ends_after_a_frame_and_leaves_the_others() -> None:
    talk = Talk(pings=PingRules(strikes=0))
    sent = memoryview(b"".join(ping(bytes([number] * 8)) for number in range(50)))

    left = talk.connection.receive(sent, talk.now)

    assert 1 == len(talk.frames())
    assert 49 * 17 == left
    assert 0 == talk.connection.receive(sent[-left:])
    assert 49 == len(talk.frames())


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

    assert [(1, frames.PROTOCOL_ERROR)] == _resets(talk)
    assert {} == talk.streams
    assert ["begin", "end"] == talk.open(3, flags=END).events


@pytest.mark.parametrize("value", [b" v", b"v ", b"\tv\t", b" "])
def test_blanks_around_metadata_are_kept_as_by_other_servers_of_grpc(
    talk: Talk, value: bytes
) -> None:
    talk.send(h2.frame(h2.HEADERS, END, 1, literal([*_PLAIN, (b"k", value)])))

    assert [] == _resets(talk)
    assert ["begin", "end"] == talk.streams[1].events
    assert (b"k", value) in talk.streams[1].headers


@pytest.mark.parametrize(
    "trailers",
    [[_PATH], [(b":status", b"200")], [(b"connection", b"close")], [(b"K", b"v")]],
    ids=["request", "response", "connection", "upper case"],
)
def test_malformed_trailers_reset_their_stream(
    talk: Talk, trailers: list[tuple[bytes, bytes]]
) -> None:
    heard = talk.open(1)

    talk.send(h2.frame(h2.HEADERS, END, 1, literal(trailers)))

    assert [(1, frames.PROTOCOL_ERROR)] == _resets(talk)
    assert ["begin", "reset"] == heard.events


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


def test_windows_of_streams_that_have_ended_cost_their_client(talk: Talk) -> None:
    talk.open(1)
    talk.send(h2.reset_frame(1))

    talk.send(h2.frame(h2.WINDOW, 0, 1, struct.pack(">I", 1)) * 2000)

    assert frames.ENHANCE_YOUR_CALM == talk.goaway()[0]


def with_streams(count: int) -> Talk:
    """Both sides of a connection with so many streams."""
    talk = Talk(max_streams=10_000)
    for number in range(1, 2 * count, 2):
        talk.open(number)
    return talk


def test_of_all_windows_that_one_frame_sets_the_last_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talk = with_streams(1000)
    visited: list[int] = []
    has_room = talk.connection.has_room

    def visit(stream: Http2Stream) -> None:
        visited.append(stream.id)
        has_room(stream)

    monkeypatch.setattr(talk.connection, "has_room", visit)
    pairs = b"".join(struct.pack(">HI", 4, 1000 + n) for n in range(2700))

    talk.send(h2.frame(4, 0, 0, pairs))

    assert 1000 == len(visited)
    assert {1000 + 2699} == {stream.window for stream in talk.connection.streams.values()}


def test_changing_all_windows_again_and_again_ends_the_connection() -> None:
    talk = with_streams(2000)

    for size in range(200):
        talk.send(h2.settings_frame({4: 1000 + size}))

    assert frames.ENHANCE_YOUR_CALM == talk.goaway()[0]
