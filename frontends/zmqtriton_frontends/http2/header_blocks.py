"""Header blocks (RFC 7541): decodes clients' blocks, and encodes the server's.

A client sends nearly the same headers with each request, in a block that refers to its table. The
decoded form of such a block is kept as long as the table does not change. The table has the fields
that all tables have, and then the fields that this client has added. The server's blocks use no
table, so they can be encoded once and sent on every connection. Strings of clients use the Huffman
code of appendix B, which is decoded in steps of four bits; the server's strings are not coded.

A block is decoded before its sender is known, so its cost is bounded: number and size of fields,
and changes of the table.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

Field = tuple[bytes, bytes]
Read = TypeVar("Read")
Headers = tuple[Field, ...]

#: Bytes that the names and values of one block may have, table overhead included (RFC 9113).
MAX_LIST_BYTES = 64 * 1024
#: Fields that one block may have: gRPC's clients send ten and their metadata.
MAX_FIELDS = 128
#: Changes of the table's size that one block may make, before its first field (RFC 7541, 4.2).
_MAX_RESIZES = 2
#: Blocks whose meaning is kept for one connection; before one more is kept, all are forgotten.
_MAX_KEPT = 32
#: Longest block that is kept, and longest text of its names and values, in bytes.
_LONGEST_KEPT = 512
_MAX_SAID = 4096
#: Bytes booked for each field of a kept block, besides its text.
_KEPT_FIELD_BYTES = 96
#: Bytes of a number after the first one; more would only be zeros.
_NUMBER_BYTES = 5

#: The size of a client's table, as both sides have it unless they say otherwise.
TABLE_BYTES = 4096
#: Bytes that a field counts for in the table and in a list, besides its name and value (RFC 7541,
#: 4.1).
FIELD_BYTES = 32

#: The static table, whose fields have the numbers from 1 on (RFC 7541, appendix A).
_COMMON: tuple[Field, ...] = (
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
)
FIRST_OWN = len(_COMMON) + 1
#: The bytes that have a code of so many bits. Codes are numbers in this order, each one more than
#: the one before; the last of the longest is the end of a string, which no string may have.
_BY_LENGTH = {
    5: b"012aceiost",
    6: b" %-./3456789=A_bdfghlmnpru",
    7: b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: b"&*,;XZ",
    10: b'!"()?',
    11: b"'+|",
    12: b"#>",
    13: b"\x00$@[]~",
    14: b"^}",
    15: b"<`{",
    19: b"\\\xc3\xd0",
    20: b"\x80\x82\x83\xa2\xb8\xc2\xe0\xe2",
    21: b"\x99\xa1\xa7\xac\xb0\xb1\xb3\xd1\xd8\xd9\xe3\xe5\xe6",
    22: b"\x81\x84\x85\x86\x88\x92\x9a\x9c\xa0\xa3\xa4\xa9\xaa"
    b"\xad\xb2\xb5\xb9\xba\xbb\xbd\xbe\xc4\xc6\xe4\xe8\xe9",
    23: b"\x01\x87\x89\x8a\x8b\x8c\x8d\x8f\x93\x95\x96\x97\x98\x9b"
    b"\x9d\x9e\xa5\xa6\xa8\xae\xaf\xb4\xb6\xb7\xbc\xbf\xc5\xe7\xef",
    24: b"\t\x8e\x90\x91\x94\x9f\xab\xce\xd7\xe1\xec\xed",
    25: b"\xc7\xcf\xea\xeb",
    26: b"\xc0\xc1\xc8\xc9\xca\xcd\xd2\xd5\xda\xdb\xee\xf0\xf2\xf3\xff",
    27: b"\xcb\xcc\xd3\xd4\xd6\xdd\xde\xdf\xf1\xf4\xf5\xf6\xf7\xf8\xfa\xfb\xfc\xfd\xfe",
    28: b"\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x0f\x10\x11\x12"
    b"\x13\x14\x15\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x7f\xdc\xf9",
    30: b"\n\r\x16",
}
_END = 256
#: State after bits that no string may have; every further step stays in it.
_NOWHERE = 256
#: Bits that padding is shorter than; it is the beginning of the end symbol's code.
_PADDING_BITS = 8


class BadBlockError(Exception):
    """Raised for a malformed block: the tables of both sides differ from now on."""


class HeadersTooLargeError(BadBlockError):
    """Raised for a block with more than MAX_LIST_BYTES or MAX_FIELDS."""


def decode(data: bytes) -> bytes:
    """Decode a Huffman-coded string. Raises BadBlockError."""
    text, state, steps = bytearray(), 0, _STEPS
    for byte in data:
        state, symbol = steps[state | byte >> 4]
        if symbol:
            text += symbol
        state, symbol = steps[state | byte & 15]
        if symbol:
            text += symbol
    if state not in _FINAL:
        raise BadBlockError("a header's string is no code")
    return bytes(text)


def _tree() -> list[list[int]]:
    """Return, for each node and bit, the next node or, below zero, the symbol it leads to."""
    nodes = [[0, 0]]
    code, length = -1, min(_BY_LENGTH)
    for bits, symbols in _BY_LENGTH.items():
        for symbol in (*symbols, *((_END,) if bits == max(_BY_LENGTH) else ())):
            code, length = (code + 1) << (bits - length), bits
            node = 0
            for place in range(bits - 1, 0, -1):
                bit = code >> place & 1
                if not nodes[node][bit]:
                    nodes.append([0, 0])
                    nodes[node][bit] = len(nodes) - 1
                node = nodes[node][bit]
            nodes[node][code & 1] = ~symbol
    return nodes


def _steps(nodes: list[list[int]]) -> list[tuple[int, bytes]]:
    """Return the state after four bits from each node, and the completed symbol or b""."""
    steps = []
    for start in range(len(nodes)):
        for bits in range(16):
            node, symbol = start, b""
            for place in (3, 2, 1, 0):
                node = nodes[node][bits >> place & 1] if node != _NOWHERE else _NOWHERE
                if node == ~_END:
                    node = _NOWHERE
                elif node < 0:
                    node, symbol = 0, bytes((~node,))
            steps.append((node << 4, symbol))
    return steps + [(_NOWHERE << 4, b"")] * 16


def _final(nodes: list[list[int]]) -> frozenset[int]:
    """Return the states that a string may end in: no code is begun, except for padding."""
    path = [0]
    while len(path) < _PADDING_BITS:
        path.append(nodes[path[-1]][1])
    return frozenset(node << 4 for node in path)


_NODES = _tree()
_STEPS = _steps(_NODES)
_FINAL = _final(_NODES)


class HeaderTable:
    """The table of fields; it changes with each field that a client adds, and drops the oldest."""

    __slots__ = ("_bytes", "_own", "_size", "changes")

    def __init__(self) -> None:
        #: Fields that the client has added, the newest last.
        self._own: deque[Field] = deque()
        self._bytes = 0
        self._size = TABLE_BYTES
        #: Number of changes so far; the blocks that are kept hold until the next change.
        self.changes = 0

    def get(self, number: int) -> Field:
        """Return a field by its number. Raises BadBlockError."""
        if 0 < number < FIRST_OWN:
            return _COMMON[number - 1]
        place = number - FIRST_OWN
        if 0 <= place < len(self._own):
            return self._own[-1 - place]
        raise BadBlockError(f"no header has the number {number}")

    def add(self, field: Field) -> None:
        """Add a field; a field that is larger than the table empties it."""
        self.changes += 1
        self._own.append(field)
        self._bytes += FIELD_BYTES + _field_size(field)
        self._shrink()

    def resize(self, size: int) -> None:
        """Set the table's size, at most TABLE_BYTES."""
        if size != self._size:
            self.changes += 1
            self._size = size
            self._shrink()

    def _shrink(self) -> None:
        while self._bytes > self._size:
            self._bytes -= FIELD_BYTES + _field_size(self._own.popleft())


def _field_size(field: Field) -> int:
    return len(field[0]) + len(field[1])


class HeaderBlocks(dict[bytes, Read]):
    """The blocks of one connection with their meaning; a new one is decoded when it is looked up.

    Look up each block once, in the order of arrival. Raises BadBlockError, after which the
    connection must end.
    """

    def __init__(
        self, read: Callable[[Headers], Read], keeps: Callable[[int], bool] = lambda size: True
    ) -> None:
        """Set up.

        `read` turns headers into the meaning of their block. `keeps` returns whether there is room
        for this number of bytes; for freed bytes the number is negative.
        """
        self._read = read
        self._keeps = keeps
        self._table = HeaderTable()
        self._kept_bytes = 0

    def __missing__(self, block: bytes) -> Read:
        changes = self._table.changes
        try:
            headers = tuple(_decode(block, self._table))
        except IndexError:
            raise BadBlockError("a header block is cut off") from None
        read = self._read(headers)
        if self._table.changes != changes:
            self._forget()
        elif len(block) <= _LONGEST_KEPT:
            self._keep(block, headers, read)
        return read

    def _keep(self, block: bytes, headers: Headers, read: Read) -> None:
        said = sum(map(_field_size, headers))
        if said > _MAX_SAID:
            return
        if len(self) >= _MAX_KEPT:
            self._forget()
        size = len(block) + said + _KEPT_FIELD_BYTES * len(headers)
        if self._keeps(size):
            self[block] = read
            self._kept_bytes += size

    def _forget(self) -> None:
        if self:
            self.clear()
            self._keeps(-self._kept_bytes)
            self._kept_bytes = 0


def _decode(block: bytes, table: HeaderTable) -> list[Field]:
    """Return the fields of a block. Raises BadBlockError, and IndexError if it is cut off."""
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
            raise HeadersTooLargeError("too many headers")
        fields.append(field)
    return fields


def _number(block: bytes, at: int, first: int, mask: int) -> tuple[int, int]:
    """Return the number that begins in the last bits of the byte before, and its end."""
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
    """Return the string that begins at a position, and its end."""
    first = block[at]
    size, at = _number(block, at + 1, first, 0x7F)
    end = at + size
    text = block[at:end]
    if len(text) < size:
        raise IndexError
    return (decode(text) if first & 0x80 else text), end


def literal(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Encode a block that has each header in full, without either side's table."""
    return b"".join(b"\x00" + _string(name) + _string(value) for name, value in headers)


#: Encoded `:status: 200`: its number in the static table.
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
