"""The table that header blocks refer to (RFC 7541, 2.3).

It has the fields that all tables have, and then those that this client has added.
"""

from __future__ import annotations

from collections import deque

Field = tuple[bytes, bytes]

#: The size of a client's table, as both sides have it unless they say otherwise.
TABLE_BYTES = 4096
#: What a field takes besides its name and value.
FIELD_BYTES = 32

#: From 1 on (RFC 7541, appendix A).
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


class NoEntryError(LookupError):
    """Raised for a number that no field has."""


class HeaderTable:
    """Changes with each field that a client adds; the oldest ones go."""

    __slots__ = ("_bytes", "_own", "_size", "changes")

    def __init__(self) -> None:
        #: The newest last.
        self._own: deque[Field] = deque()
        self._bytes = 0
        self._size = TABLE_BYTES
        #: How often it has changed.
        self.changes = 0

    def get(self, number: int) -> Field:
        """Return a field by its number. Raises NoEntryError."""
        if 0 < number < FIRST_OWN:
            return _COMMON[number - 1]
        place = number - FIRST_OWN
        if 0 <= place < len(self._own):
            return self._own[-1 - place]
        raise NoEntryError(f"no header has the number {number}")

    def add(self, field: Field) -> None:
        """Add a field; a field larger than the table empties it."""
        self.changes += 1
        self._own.append(field)
        self._bytes += _size(field)
        self._shrink()

    def resize(self, size: int) -> None:
        """Take a new size, of at most TABLE_BYTES."""
        if size != self._size:
            self.changes += 1
            self._size = size
            self._shrink()

    def _shrink(self) -> None:
        while self._bytes > self._size:
            self._bytes -= _size(self._own.popleft())


def _size(field: Field) -> int:
    return FIELD_BYTES + len(field[0]) + len(field[1])
