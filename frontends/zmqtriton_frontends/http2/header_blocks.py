"""Header blocks (RFC 7541): decodes those of clients, and encodes ours.

A client sends nearly the same with each request, in a block that refers to its table: the meaning
of such a block is kept as long as the table stays as it is. Our own blocks never touch the client's
table, so they can be encoded once and sent on every connection.

A block is decoded before anybody knows who sends it, so what one may cost is bounded: its fields,
their size, and changes of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from zmqtriton_frontends.http2 import huffman
from zmqtriton_frontends.http2.header_table import (
    FIELD_BYTES,
    TABLE_BYTES,
    Field,
    HeaderTable,
    NoEntryError,
)

Read = TypeVar("Read")
Headers = tuple[Field, ...]

#: The most that the names and values of one block may take, table overhead included (RFC 9113).
MAX_LIST_BYTES = 64 * 1024
#: The most fields of one block: gRPC's clients send ten and their metadata.
MAX_FIELDS = 128
#: How often a block may change the size of the table, before its first field (RFC 7541, 4.2).
_MAX_RESIZES = 2
#: Of one connection.
_MAX_KEPT = 32
#: Longer blocks are not kept, nor those that mean more.
_LONGEST_KEPT = 512
_MAX_SAID = 4096
#: What each field of a block takes that is kept, besides its text.
_KEPT_FIELD_BYTES = 96
#: Bytes of a number after the first one; more would only be zeros.
_NUMBER_BYTES = 5


class BadBlockError(Exception):
    """Raised for a malformed block: the tables of both sides differ from now on."""


class TooLargeError(BadBlockError):
    """Raised for more than MAX_LIST_BYTES or MAX_FIELDS."""


class HeaderBlocks(Generic[Read]):
    """The blocks of one connection, in the order in which they come."""

    def __init__(
        self, read: Callable[[Headers], Read], keeps: Callable[[int], bool] = lambda size: True
    ) -> None:
        """Set up.

        `read` turns headers into what decode() returns, which is kept with the block. `keeps`
        returns whether there is room for so many bytes more; it is told of fewer, too.
        """
        self._read = read
        self._keeps = keeps
        self._table = HeaderTable()
        self._kept: dict[bytes, Read] = {}
        self._kept_bytes = 0

    def decode(self, block: bytes) -> Read:
        """Decode a block. Raises BadBlockError; then the connection cannot go on."""
        kept = self._kept.get(block)
        if kept is not None:
            return kept
        changes = self._table.changes
        try:
            headers = tuple(_decode(block, self._table))
        except IndexError:
            raise BadBlockError("a header block is cut off") from None
        except (NoEntryError, huffman.BadCodeError) as error:
            raise BadBlockError(str(error)) from None
        read = self._read(headers)
        if self._table.changes != changes:
            self._forget()
        elif len(block) <= _LONGEST_KEPT:
            self._keep(block, headers, read)
        return read

    def _keep(self, block: bytes, headers: Headers, read: Read) -> None:
        said = sum(map(_size, headers))
        if said > _MAX_SAID:
            return
        if len(self._kept) >= _MAX_KEPT:
            self._forget()
        size = len(block) + said + _KEPT_FIELD_BYTES * len(headers)
        if self._keeps(size):
            self._kept[block] = read
            self._kept_bytes += size

    def _forget(self) -> None:
        if self._kept:
            self._kept.clear()
            self._keeps(-self._kept_bytes)
            self._kept_bytes = 0


def _size(field: Field) -> int:
    return len(field[0]) + len(field[1])


def _decode(block: bytes, table: HeaderTable) -> list[Field]:
    """Return the fields of a block.

    Raises BadBlockError, NoEntryError, BadCodeError, and IndexError for one that is cut off.
    """
    fields: list[Field] = []
    at, end, left, resizes = 0, len(block), MAX_LIST_BYTES, 0
    while at < end:
        first = block[at]
        at += 1
        if first & 0x80:
            number, at = _number(block, at, first, 0x7F)
            field = table.get(number)
        elif first & 0xE0 == 0x20:
            size, at = _number(block, at, first, 0x1F)
            resizes += 1
            if fields or resizes > _MAX_RESIZES or size > TABLE_BYTES:
                raise BadBlockError("the header table may not be resized so")
            table.resize(size)
            continue
        else:
            is_added = first & 0x40
            number, at = _number(block, at, first, 0x3F if is_added else 0x0F)
            if number:
                name = table.get(number)[0]
            else:
                name, at = _read_string(block, at)
            value, at = _read_string(block, at)
            field = name, value
            if is_added:
                table.add(field)
        left -= FIELD_BYTES + len(field[0]) + len(field[1])
        if left < 0 or len(fields) >= MAX_FIELDS:
            raise TooLargeError("too many headers")
        fields.append(field)
    return fields


def _number(block: bytes, at: int, first: int, mask: int) -> tuple[int, int]:
    """Return the number that begins in the last bits of the byte before, and where it ends."""
    number = first & mask
    if number < mask:
        return number, at
    for shift in range(0, 7 * _NUMBER_BYTES, 7):
        byte = block[at]
        at += 1
        number += (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise BadBlockError("a number of a header block is too large")


def _read_string(block: bytes, at: int) -> tuple[bytes, int]:
    """Return the string that begins there, and where it ends."""
    first = block[at]
    size, at = _number(block, at + 1, first, 0x7F)
    end = at + size
    text = block[at:end]
    if len(text) < size:
        raise IndexError
    return (huffman.decode(text) if first & 0x80 else text), end


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
