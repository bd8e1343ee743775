from __future__ import annotations

import random
from contextlib import suppress

import hpack
import pytest

from zmqtriton_frontends.http2.header_blocks import (
    MAX_FIELDS,
    BadBlockError,
    HeaderBlocks,
    Headers,
    TooLargeError,
    literal,
    status,
)


class Blocks:
    """Counts how often headers are read anew."""

    def __init__(self) -> None:
        self.reads = 0
        self.blocks: HeaderBlocks[Headers] = HeaderBlocks(self._read)

    def _read(self, headers: Headers) -> Headers:
        self.reads += 1
        return headers


def test_a_block_that_refers_to_the_table_is_read_once() -> None:
    encoder, blocks = hpack.Encoder(), Blocks()
    said = [("a", "b"), ("c", "d")]

    headers = [blocks.blocks.decode(bytes(encoder.encode(said))) for _ in range(5)]

    # The first one fills the table, the second one is kept.
    assert 2 == blocks.reads
    assert {((b"a", b"b"), (b"c", b"d"))} == set(headers)


def test_a_block_is_read_anew_when_the_table_has_changed() -> None:
    encoder, blocks = hpack.Encoder(), Blocks()
    said = [("a", "1")]
    for _ in range(3):
        blocks.blocks.decode(bytes(encoder.encode(said)))
    newest_of_the_table = b"\xbe"
    assert ((b"a", b"1"),) == blocks.blocks.decode(newest_of_the_table)

    blocks.blocks.decode(bytes(encoder.encode([("a", "2")])))

    assert ((b"a", b"2"),) == blocks.blocks.decode(newest_of_the_table)


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
        plain_said = tuple(plain.decode(block, raw=True))
        assert plain_said == blocks.blocks.decode(block)
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
    for block in many:
        blocks.decode(block)

    assert 10 < len(blocks._kept) < 30
    assert sum(map(len, blocks._kept)) + 100 * len(blocks._kept) < held[0] <= 4096
    assert ((b"a29", b"b" * 100),) == blocks.decode(many[-1])
    resized = b"\x20"
    blocks.decode(resized + many[0])
    assert 0 == held[0]


def test_what_a_client_repeats_without_end_is_not_all_kept() -> None:
    blocks = Blocks()

    for number in range(1000):
        blocks.blocks.decode(literal([(b"n", b"%d" % number)]))
    blocks.blocks.decode(literal([(b"n", b"x" * 3000)]))

    assert len(blocks.blocks._kept) <= 32
    assert all(len(block) <= 512 for block in blocks.blocks._kept)


@pytest.mark.parametrize("block", [b"\xff" * 6, b"\x80", b"\xbe", b"\x40\x05a", b"\x3f\xe2\x1f"])
def test_what_is_no_block_says_so(block: bytes) -> None:
    with pytest.raises(BadBlockError):
        Blocks().blocks.decode(block)


def test_a_block_that_says_too_much_says_so() -> None:
    with pytest.raises(TooLargeError):
        Blocks().blocks.decode(literal([(b"a", b"x" * 70_000)]))


def test_a_block_has_as_many_fields_as_it_may_and_no_more() -> None:
    accept = b"\x93"

    assert MAX_FIELDS == len(Blocks().blocks.decode(accept * MAX_FIELDS))
    with pytest.raises(TooLargeError):
        Blocks().blocks.decode(accept * (MAX_FIELDS + 1))


def test_a_block_may_resize_the_table_twice_before_its_first_field() -> None:
    empty, full, accept = b"\x20", b"\x3f\xe1\x1f", b"\x93"

    assert 1 == len(Blocks().blocks.decode(empty + full + accept))
    for block in (empty * 3 + accept, accept + empty, empty * 60_000):
        with pytest.raises(BadBlockError):
            Blocks().blocks.decode(block)


def test_what_is_kept_ends_with_the_size_of_the_table() -> None:
    encoder, blocks = hpack.Encoder(), Blocks()
    for _ in range(3):
        blocks.blocks.decode(bytes(encoder.encode([("a", "1")])))

    blocks.blocks.decode(b"\x20")

    with pytest.raises(BadBlockError):
        blocks.blocks.decode(b"\xbe")


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
                read = blocks.blocks.decode(block)
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

        assert tuple(said) == blocks.blocks.decode(bytes(encoder.encode(said, huffman=True)))


def test_texts_in_code_that_end_wrongly_are_none() -> None:
    code = hpack.huffman.HuffmanEncoder(
        hpack.huffman_constants.REQUEST_CODES, hpack.huffman_constants.REQUEST_CODES_LENGTH
    )
    right = code.encode(b"www.example.com")
    for wrong in (right + b"\xff", right[:-1] + b"\x00", b"\xff" * 4, b"\x00\xfe"):
        with pytest.raises(BadBlockError):
            Blocks().blocks.decode(b"\x00\x01a" + bytes([0x80 | len(wrong)]) + wrong)


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 254, 255, 20_000])
def test_our_own_blocks_say_what_they_should(size: int) -> None:
    said = [(b"name", b"v" * size), (b"n" * max(1, size), b"")]

    read = hpack.Decoder(200_000).decode(literal(said), raw=True)

    assert said == [tuple(pair) for pair in read]


@pytest.mark.parametrize("code", [200, 415])
def test_a_status_is_the_first_header(code: int) -> None:
    assert [(b":status", b"%d" % code)] == list(hpack.Decoder().decode(status(code), raw=True))
