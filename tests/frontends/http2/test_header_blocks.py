from __future__ import annotations

import random

import hpack
import pytest

from zmqtriton_frontends.http2.header_blocks import (
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

    found = [blocks.blocks.decode(bytes(encoder.encode(said))) for _ in range(5)]

    # The first one fills the table, the second one is kept.
    assert 2 == blocks.reads
    assert {((b"a", b"b"), (b"c", b"d"))} == set(found)


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


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 254, 255, 20_000])
def test_our_own_blocks_say_what_they_should(size: int) -> None:
    said = [(b"name", b"v" * size), (b"n" * max(1, size), b"")]

    read = hpack.Decoder(200_000).decode(literal(said), raw=True)

    assert said == [tuple(pair) for pair in read]


@pytest.mark.parametrize("code", [200, 415])
def test_a_status_is_the_first_header(code: int) -> None:
    assert [(b":status", b"%d" % code)] == list(hpack.Decoder().decode(status(code), raw=True))
