from __future__ import annotations

import random
import struct

import pytest

from tests.frontends.http2.talk import Frame, Talk, data_of, kinds
from tests.support import raw_http2 as h2
from zmqtriton_frontends.http2 import frames
from zmqtriton_frontends.process.kept_parts import copy_some

END = h2.END_HEADERS | h2.END_STREAM


def window(stream: int, more: int) -> bytes:
    return h2.frame(h2.WINDOW, 0, stream, struct.pack(">I", more))


def test_a_small_answer_goes_out_in_one_piece() -> None:
    talk = Talk()
    stream = talk.open(1, flags=END)

    talk.connection.answer(stream, b"head", (b"prefix", b"data"), b"tail")

    assert 1 == len(talk.connection.out)
    assert [
        Frame(frames.HEADERS, frames.END_HEADERS, 1, b"head"),
        Frame(frames.DATA, 0, 1, b"prefixdata"),
        Frame(frames.HEADERS, END, 1, b"tail"),
    ] == talk.frames()
    assert {} == talk.connection.streams


def test_who_is_answered_amid_its_request_need_not_finish_it() -> None:
    talk = Talk()
    stream = talk.open(1)

    talk.connection.answer(stream, b"head", (b"", b"data"), b"tail")

    assert Frame(frames.RST_STREAM, 0, 1, bytes(4)) == talk.frames()[-1]


def test_a_large_answer_waits_for_room_and_keeps_to_the_size_of_frames() -> None:
    talk = Talk()
    stream = talk.open(1, flags=END)
    data = random.Random(1).randbytes(300_000)

    talk.connection.answer(stream, b"head", (b"", data), b"tail")

    sent = talk.frames()
    assert data[:65_535] == data_of(sent, 1)
    assert 16_384 == max(len(frame.payload) for frame in sent)
    talk.send(window(0, 1_000_000))
    assert [] == talk.frames()
    talk.send(window(1, 100_000))
    sent += talk.frames_to_the_end()
    assert data[:165_535] == data_of(sent, 1)
    talk.send(h2.settings_frame({4: 300_000}))
    sent += talk.frames_to_the_end()
    assert data == data_of(sent, 1)
    assert (frames.HEADERS, 1) == kinds(sent)[-1]
    assert {} == talk.connection.streams


def test_large_pieces_are_sent_from_where_they_lie_in_frames_that_have_several() -> None:
    talk = Talk(h2.PREFACE + h2.settings_frame({4: 1 << 20, 5: 1 << 20}) + window(0, 1 << 20))
    stream = talk.open(1, flags=END)
    talk.frames()
    first, second = memoryview(bytes(100_000)), memoryview(bytes(200_000))
    pieces: list[bytes | memoryview] = [b"head", first, b"name", second]

    talk.connection.answer(stream, b"h", pieces, b"t")

    lying = [piece.obj for piece in talk.connection.out if type(piece) is memoryview]
    assert [id(first.obj), id(second.obj)] == [id(obj) for obj in lying]
    sent = talk.frames()
    assert [300_008] == [len(frame.payload) for frame in sent if frame.kind == frames.DATA]
    assert b"".join(pieces) == data_of(sent, 1)


def test_what_waits_can_be_made_the_connections_own() -> None:
    talk = Talk()
    stream = talk.open(1, flags=END)
    data = memoryview(bytearray(random.Random(2).randbytes(300_000)))
    talk.connection.answer(stream, b"h", [b"head", data], b"t")
    sent = talk.frames()

    while copy_some(stream.outgoing):
        pass

    assert all(piece.obj is not data.obj for piece in stream.outgoing)
    talk.send(window(0, 1_000_000), window(1, 1_000_000))
    sent += talk.frames_to_the_end()
    assert b"head" + data == data_of(sent, 1)


def test_a_client_may_take_room_back() -> None:
    talk = Talk()
    stream = talk.open(1)
    talk.connection.begin(stream, b"head")
    talk.connection.send(stream, (b"", bytes(60_000)))
    talk.frames_to_the_end()
    stream.events.clear()

    talk.send(h2.settings_frame({4: 0}))
    talk.connection.send(stream, (b"", b"more"))

    assert b"" == data_of(talk.frames_to_the_end(), 1)
    assert -60_000 == stream.window
    talk.send(window(1, 60_002))
    assert b"mo" == data_of(talk.frames_to_the_end(), 1)
    assert [] == stream.events
    talk.send(window(1, 2))
    assert b"re" == data_of(talk.frames_to_the_end(), 1)
    assert ["sent"] == stream.events


def test_streams_take_turns() -> None:
    talk = Talk()
    talk.send(h2.settings_frame({4: 2**31 - 1}), window(0, 2**31 - 1 - 65_535))
    streams = [talk.open(number, flags=END) for number in (1, 3, 5)]
    talk.frames()
    for stream in streams:
        talk.connection.answer(stream, b"h", (b"", bytes(2_000_000)), b"t")

    first = talk.frames_to_the_end()

    order = [frame.stream for frame in first if frame.kind == frames.DATA]
    assert {1, 3, 5} == set(order[: len(order) // 3])
    assert [2_000_000] * 3 == [len(data_of(first, number)) for number in (1, 3, 5)]


def test_nothing_is_made_ready_for_a_client_that_does_not_read() -> None:
    talk = Talk()
    talk.send(h2.settings_frame({4: 2**31 - 1}), window(0, 2**31 - 1 - 65_535))
    stream = talk.open(1, flags=END)
    talk.frames()
    talk.connection.is_paused = True

    talk.connection.answer(stream, b"h", (b"", bytes(10_000_000)), b"t")

    assert b"" == data_of(talk.frames(), 1)
    talk.connection.is_paused = False
    talk.connection.go_on()
    assert 3_000_000 > talk.connection.out_bytes
    assert 10_000_000 == len(data_of(talk.frames_to_the_end(), 1))


def test_what_is_ready_while_nothing_comes_wakes_whoever_sends_it() -> None:
    talk = Talk()
    streams = [talk.open(number, flags=END) for number in (1, 3)]
    talk.frames()
    before = talk.wakes

    for stream in streams:
        talk.connection.answer(stream, b"h", (b"", b"d"), b"t")

    assert before + 1 == talk.wakes


@pytest.mark.parametrize("seed", range(5))
def test_every_byte_arrives_in_order_whatever_room_there_is(seed: int) -> None:
    rng = random.Random(seed)
    talk = Talk(h2.PREFACE + h2.settings_frame({4: rng.randrange(2000)}))
    sent, got, open_ = {}, {}, {}
    for number in range(1, 21, 2):
        open_[number] = talk.open(number, flags=END)
        talk.connection.begin(open_[number], b"h")
        sent[number] = got[number] = b""

    def take() -> None:
        for frame in talk.frames():
            if frame.kind == frames.DATA:
                got[frame.stream] += frame.payload

    for _ in range(600):
        number = rng.choice(list(open_))
        if rng.random() < 0.5 and len(sent[number]) < 30_000:
            data = rng.randbytes(rng.randrange(1, 3000))
            sent[number] += data
            talk.connection.send(open_[number], (data[:5], data[5:]))
        else:
            talk.send(window(rng.choice((0, number)), rng.randrange(1, 4000)))
        talk.connection.is_paused = rng.random() < 0.2
        if not talk.connection.is_paused:
            talk.connection.go_on()
        take()
    talk.connection.is_paused = False
    for number, stream in open_.items():
        talk.connection.finish(stream, b"t")
        if number in talk.connection.streams:
            talk.send(window(number, 1 << 20))
    talk.send(window(0, 1 << 24))
    talk.connection.go_on()
    take()

    assert sent == got
    assert {} == talk.connection.streams
