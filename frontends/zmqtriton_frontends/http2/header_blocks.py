"""Header blocks: decodes those of clients, and encodes ours.

A client sends nearly the same with each request, in a block that refers to its table: the meaning
of such a block is kept as long as the table stays as it is. Our own blocks never touch the client's
table, so they can be encoded once and sent on every connection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import hpack

Read = TypeVar("Read")
Headers = tuple[tuple[bytes, bytes], ...]

#: The most that the names and values of one block may take, table overhead included (RFC 9113).
MAX_LIST_BYTES = 64 * 1024
#: Of one connection.
_MOST_KEPT = 32
#: Longer blocks are not kept, nor those that mean more.
_LONGEST_KEPT = 512
_MOST_SAID = 4096
#: A decoder's table, as both sides have it unless they say otherwise.
TABLE_BYTES = 4096


class BadBlockError(Exception):
    """Raised for a malformed block: the tables of both sides differ from now on."""


class TooLargeError(BadBlockError):
    """Raised for more than MAX_LIST_BYTES."""


class HeaderBlocks(Generic[Read]):
    """The blocks of one connection, in the order in which they come."""

    def __init__(self, read: Callable[[Headers], Read]) -> None:
        """Set up; `read` turns headers into what decode() returns, which is kept with the block."""
        self._read = read
        self._decoder = hpack.Decoder(MAX_LIST_BYTES)
        self._decoder.max_allowed_table_size = TABLE_BYTES
        self._kept: dict[bytes, Read] = {}

    def decode(self, block: bytes) -> Read:
        """Decode a block. Raises BadBlockError; then the connection cannot go on."""
        kept = self._kept.get(block)
        if kept is not None:
            return kept
        table = self._decoder.header_table
        entries = table.dynamic_entries
        # each entry is an object of its own, and this one is held, so no later one is the same
        size, newest, most = len(entries), entries[0] if entries else None, table.maxsize
        try:
            headers: Headers = tuple(
                (bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True)
            )
        except hpack.OversizedHeaderListError:
            raise TooLargeError("too many headers") from None
        except hpack.HPACKError as error:
            raise BadBlockError(str(error)) from None
        read = self._read(headers)
        unchanged = len(entries) == size and table.maxsize == most
        if not unchanged or (entries[0] if entries else None) is not newest:
            self._kept.clear()
        elif len(block) <= _LONGEST_KEPT and sum(map(_size, headers)) <= _MOST_SAID:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[block] = read
        return read


def _size(header: tuple[bytes, bytes]) -> int:
    return len(header[0]) + len(header[1])


def literal(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Encode a block that has each header in full, without either side's table."""
    out = bytearray()
    for name, value in headers:
        out += b"\x00" + _string(name) + _string(value)
    return bytes(out)


#: `:status` of the table that everybody has.
STATUS_200 = b"\x88"


def status(code: int) -> bytes:
    """Encode `:status`, always the first header of a response."""
    return STATUS_200 if code == 200 else b"\x08" + _string(b"%d" % code)


def _string(text: bytes) -> bytes:
    size = len(text)
    if size < 127:
        return bytes((size,)) + text
    out = bytearray((127,))
    size -= 127
    while size >= 128:
        out.append(size & 127 | 128)
        size >>= 7
    out.append(size)
    return bytes(out) + text
