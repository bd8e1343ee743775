"""Floods of HTTP/2 that cost a server much more than their sender, each without an end.

    for data in FLOODS["fields"](random.Random(1)):
        connection.send(data)

What comes is a request for an RPC that does not exist wherever a stream is begun, so nothing of it
needs a token or a model. A server may end the connection at any of it.
"""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable, Iterator

import hpack

from tests.support import raw_http2 as h2

_STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
#: Larger than what is sent at once is no attack of its own.
_AT_ONCE = 32 << 10
#: Of the table that everybody has, from `accept-charset` on: regular fields, one byte each.
_STATIC = range(15, 62)
_NAMES_OF_CONNECTIONS = (57,)  # transfer-encoding, which no request may have


def _request(path: str) -> bytes:
    return h2.header_block(path)


def _blocks(make: Callable[[int], bytes]) -> Iterator[bytes]:
    """Begin one stream after the other with what is made for it."""
    for number in itertools.count():
        yield _headers(2 * number + 1, make(number), 16_000)


def _headers(stream: int, block: bytes, size: int) -> bytes:
    """A block in frames of that size, of which there may be 32."""
    parts = [block[at : at + size] for at in range(0, len(block), size)]
    parts[31:] = [b"".join(parts[31:])] if len(parts) > 31 else []
    data, kind, flags = bytearray(), h2.HEADERS, h2.END_STREAM
    for left, part in zip(range(len(parts) - 1, -1, -1), parts, strict=True):
        data += h2.frame(kind, flags | (0 if left else h2.END_HEADERS), stream, part)
        kind, flags = h2.CONTINUATION, 0
    return bytes(data)


def _fields(count: int, chance: random.Random) -> bytes:
    kinds = [n for n in _STATIC if n not in _NAMES_OF_CONNECTIONS]
    return bytes(0x80 | chance.choice(kinds) for _ in range(count))


def _literal(name: bytes, value: bytes, first: int = 0x40) -> bytes:
    return bytes([first, len(name)]) + name + length(len(value), 0) + value


def length(size: int, flag: int) -> bytes:
    if size < 127:
        return bytes([flag | size])
    number, size = bytearray([flag | 127]), size - 127
    while size >= 128:
        number.append(size & 127 | 128)
        size >>= 7
    return bytes([*number, size])


def fields(chance: random.Random) -> Iterator[bytes]:
    """As many fields as fit into a block."""
    return _blocks(lambda _: _request("/a.B/C") + _fields(1500, chance))


def few_fields(chance: random.Random) -> Iterator[bytes]:
    """As many fields as a block may have."""
    return _blocks(lambda _: _request("/a.B/C") + _fields(chance.randint(90, 110), chance))


def table_sizes(chance: random.Random) -> Iterator[bytes]:
    """Updates of the table's size, thousands in a block."""
    return _blocks(lambda _: b"\x20" * chance.randint(20_000, 60_000) + _request("/a.B/C"))


def large_entries(chance: random.Random) -> Iterator[bytes]:
    """One entry that fills the table, and references to it."""

    def make(number: int) -> bytes:
        value = b"%d" % number + b"v" * 3900
        return _request("/a.B/C") + _literal(b"a", value) + b"\xbe" * chance.randint(10, 14)

    return _blocks(make)


def table_churn(chance: random.Random) -> Iterator[bytes]:
    """New entries for the table in each block."""

    def make(number: int) -> bytes:
        names = (b"k%d-%d" % (number, at) for at in range(chance.randint(50, 110)))
        return _request("/a.B/C") + b"".join(_literal(name, b"") for name in names)

    return _blocks(make)


def huffman(chance: random.Random) -> Iterator[bytes]:
    """Long values in Huffman's code."""
    coder = hpack.huffman.HuffmanEncoder(
        hpack.huffman_constants.REQUEST_CODES, hpack.huffman_constants.REQUEST_CODES_LENGTH
    )

    def make(number: int) -> bytes:
        value = coder.encode(bytes(chance.choice(b"aeiost0129") for _ in range(30_000)))
        long = b"\x00\x01a" + length(len(value), 0x80) + value
        return _request("/a.B/C") + long + b"\x00\x01b\x01" + bytes([48 + number % 10])

    made = [make(number) for number in range(10)]
    return _blocks(lambda number: made[number % 10])


def pieces(chance: random.Random) -> Iterator[bytes]:
    """Headers cut into as many frames as they may be cut into."""
    for number in itertools.count():
        yield _headers(2 * number + 1, _request(f"/a.B/{chance.randrange(10**9)}"), 1)


def unknown_calls(chance: random.Random) -> Iterator[bytes]:
    """Calls that do not exist, with a new path each."""
    return _blocks(lambda _: _request(f"/a.B/{chance.randrange(10**12)}"))


def windows(chance: random.Random) -> Iterator[bytes]:
    """Room of one byte for a stream, or for all of them."""
    yield h2.headers_frame(1, _STREAM)
    more = struct.pack(">I", 1)
    while True:
        yield h2.frame(h2.WINDOW, 0, chance.choice((0, 1)), more)


def bytes_of_data(chance: random.Random) -> Iterator[bytes]:
    """A message that comes in frames of one byte."""
    yield h2.headers_frame(1, _STREAM)
    yield h2.frame(h2.DATA, 0, 1, struct.pack(">BI", 0, 1 << 30))
    while True:
        yield h2.frame(h2.DATA, 0, 1, b"x")


def messages(chance: random.Random) -> Iterator[bytes]:
    """Messages of a stream that are none, many in a frame."""
    stream = 1
    while True:
        yield h2.headers_frame(stream, _STREAM)
        for _ in range(10):
            yield h2.frame(h2.DATA, 0, stream, struct.pack(">BI", 0, 0) * 3000)
        stream += 2


#: By what they consist of.
FLOODS: dict[str, Callable[[random.Random], Iterator[bytes]]] = {
    "fields": fields,
    "few fields": few_fields,
    "table sizes": table_sizes,
    "large entries": large_entries,
    "table churn": table_churn,
    "huffman": huffman,
    "pieces": pieces,
    "unknown calls": unknown_calls,
    "windows": windows,
    "bytes of data": bytes_of_data,
    "messages": messages,
}


def chunks(name: str, seed: int, limit: int) -> Iterator[bytes]:
    """Iterate over up to so many bytes of a flood, in pieces that are worth a call each."""
    sent, ready = 0, bytearray()
    for data in FLOODS[name](random.Random(seed)):
        ready += data
        if len(ready) >= _AT_ONCE:
            yield bytes(ready)
            sent += len(ready)
            ready.clear()
        if sent >= limit:
            return
