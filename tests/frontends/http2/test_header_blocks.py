"""Blocks of headers, and the order in which a connection sends."""

from __future__ import annotations

import random
from contextlib import suppress

import hpack
import pytest

from tests.frontends.http2.talk import END, Frame, Heard, Talk, data_of, kinds, window
from tests.support import raw_http2 as h2
from zmqtriton_frontends.http2 import frames
from zmqtriton_frontends.http2.header_blocks import (
    MAX_FIELDS,
    BadBlockError,
    HeaderBlocks,
    Headers,
    HeadersTooLargeError,
    literal,
    status,
)

# ----------------------------------------------------------------------- header blocks


class Blocks:
    """Counts how often headers are read anew."""

    def __init__(self) -> None:
        self.reads = 0
        self.blocks: HeaderBlocks[Headers] = HeaderBlocks(self._read)

    def _read(self, headers: Headers) -> Headers:
        self.reads += 1
        return headers


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_what_is_kept_is_what_the_table_says(seed: int) -> None:
    # A small table, so that entries are dropped all the time.
    rng = random.Random(seed)
    encoder, plain, blocks = hpack.Encoder(), hpack.Decoder(), Blocks()
    for _ in range(3000):
        if rng.random() < 0.01:
            encoder.header_table_size = rng.choice((0, 60, 150, 4096))
        said = [(f"n{rng.randrange(4)}", "v" * rng.randrange(40)) for _ in range(rng.randrange(4))]
        block = bytes(encoder.encode(said))
        assert tuple(plain.decode(block, raw=True)) == blocks.blocks[block]
    assert blocks.reads < 3000


def test_what_is_kept_has_room_and_gives_it_back() -> None:
    held = [0]

    def keeps(size: int) -> bool:
        if held[0] + size > 4096:
            return False
        held[0] += size
        return True

    blocks: HeaderBlocks[Headers] = HeaderBlocks(lambda headers: headers, keeps)
    many = [literal([(b"a%d" % n, b"b" * 100)]) for n in range(30)]
    read = [blocks[block] for block in many]

    assert 10 < len(blocks) < 30
    assert sum(map(len, blocks)) + 100 * len(blocks) < held[0] <= 4096
    assert ((b"a29", b"b" * 100),) == read[-1] == blocks[many[-1]]
    assert read[0] == blocks[b"\x20" + many[0]]
    assert 0 == held[0]


def test_what_a_client_repeats_without_end_is_not_all_kept() -> None:
    blocks = Blocks()

    for number in range(1000):
        assert blocks.blocks[literal([(b"n", b"%d" % number)])]
    assert blocks.blocks[literal([(b"n", b"x" * 3000)])]

    assert len(blocks.blocks) <= 32
    assert all(len(block) <= 512 for block in blocks.blocks)


@pytest.mark.parametrize(
    ("block", "error"),
    [
        *((block, BadBlockError) for block in (b"\xff" * 6, b"\x80", b"\xbe", b"\x40\x05a")),
        (b"\x3f\xe2\x1f", BadBlockError),
        (literal([(b"a", b"x" * 70_000)]), HeadersTooLargeError),
        (literal([(b"a" * 70_000, b"x")]), HeadersTooLargeError),
    ],
)
def test_what_is_no_block_or_says_too_much_is_refused(block: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        Blocks().blocks[block]


def test_a_block_has_as_many_fields_as_it_may_and_no_more() -> None:
    accept = b"\x93"

    assert MAX_FIELDS == len(Blocks().blocks[accept * MAX_FIELDS])
    with pytest.raises(HeadersTooLargeError):
        Blocks().blocks[accept * (MAX_FIELDS + 1)]


def _number(chance: random.Random, bits: int) -> bytes:
    """A number behind so many bits of something else, which are 0."""
    value = chance.choice((0, 1, 1, 5, 5, 15, 30, 61, 62, 62, 63, 64, 70, 127, 128, 300, 4096))
    return bytes(hpack.hpack.encode_integer(value, bits))


def _damaged_block(chance: random.Random) -> bytes:
    """A block that no encoder writes: any kinds of fields, any numbers, cut anywhere."""
    block, resizes = bytearray(), 0
    for _ in range(chance.randrange(1, 5)):
        first, bits = chance.choice(((0x80, 7), (0x40, 6), (0x20, 5), (0x10, 4), (0, 4)))
        resizes += first == 0x20
        if resizes > 2:  # hpack takes any number of them
            break
        number = _number(chance, bits)
        block += bytes([number[0] | first]) + number[1:]
        for _ in range(0 if first in (0x80, 0x20) else 2 - bool(number[0])):
            text = chance.randbytes(chance.randrange(9))
            block += bytes([len(text) | chance.choice((0, 0, 0x80))]) + text
    return bytes(block[: chance.choice((len(block), len(block), chance.randrange(len(block) + 1)))])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_any_block_means_what_it_means_to_another_decoder(seed: int) -> None:
    chance, both = random.Random(seed), 0
    for _ in range(3000):
        plain, blocks = hpack.Decoder(), Blocks()
        for _ in range(4):
            block = _damaged_block(chance)
            said = read = None
            with suppress(hpack.HPACKError, IndexError):
                said = tuple(map(tuple, plain.decode(block, raw=True)))
            with suppress(BadBlockError):
                read = blocks.blocks[block]
            assert said == read, block
            if said is None:
                break
            both += 1

    assert both > 500


@pytest.mark.parametrize("seed", range(2))
def test_texts_in_code_are_read(seed: int) -> None:
    chance = random.Random(seed)
    encoder, blocks = hpack.Encoder(), Blocks()
    for _ in range(500):
        said = [(b"n", chance.randbytes(chance.randrange(40))), (b"m", bytes(range(256)))]

        assert tuple(said) == blocks.blocks[bytes(encoder.encode(said, huffman=True))]


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 254, 255, 20_000])
def test_our_own_blocks_say_what_they_should(size: int) -> None:
    said = [(b"name", b"v" * size), (b"n" * max(1, size), b"")]

    assert said == [tuple(pair) for pair in hpack.Decoder(200_000).decode(literal(said), raw=True)]


@pytest.mark.parametrize("code", [200, 415])
def test_a_status_is_the_first_header(code: int) -> None:
    assert [(b":status", b"%d" % code)] == list(hpack.Decoder().decode(status(code), raw=True))


# ----------------------------------------------------------------------------- sending


def test_a_small_answer_goes_out_in_one_piece(talk: Talk, call: Heard) -> None:
    talk.connection.answer(call, b"head", (b"prefix", b"data"), b"tail")

    assert 1 == len(talk.connection.out)
    assert [
        Frame(frames.HEADERS, frames.END_HEADERS, 1, b"head"),
        Frame(frames.DATA, 0, 1, b"prefixdata"),
        Frame(frames.HEADERS, END, 1, b"tail"),
    ] == talk.frames()
    assert {} == talk.connection.streams


def test_a_large_answer_waits_for_room_and_keeps_to_the_size_of_frames(
    talk: Talk, call: Heard
) -> None:
    data = random.Random(1).randbytes(300_000)

    talk.connection.answer(call, b"head", (b"", data), b"tail")

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
    assert len(data) == talk.connection.prepared_bytes
    assert {} == talk.connection.streams


def test_streams_take_turns(talk: Talk) -> None:
    talk.send(h2.settings_frame({4: 2**31 - 1}), window(0, 2**31 - 1 - 65_535))
    streams = [talk.open(number, flags=END) for number in (1, 3, 5)]
    talk.frames()
    for stream in streams:
        talk.connection.answer(stream, b"h", (b"", bytes(2_000_000)), b"t")

    first = talk.frames_to_the_end()

    order = [frame.stream for frame in first if frame.kind == frames.DATA]
    assert {1, 3, 5} == set(order[: len(order) // 3])
    assert [2_000_000] * 3 == [len(data_of(first, number)) for number in (1, 3, 5)]
