"""Which header fields a client may send in a request and in its trailers (RFC 9113, 8.1 to 8.3)."""

from __future__ import annotations

import re

#: As header_blocks.Headers.
Fields = tuple[tuple[bytes, bytes], ...]

#: Names are lower-case tokens; values have no line ends.
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE = re.compile(rb"[^\0\r\n]*")
#: Nor white space around them; other values may have it, as with gRPC's own servers: their clients
#: send it in metadata.
_PSEUDO_VALUE = re.compile(rb"(?:[^\0\r\n\t ](?:[^\0\r\n]*[^\0\r\n\t ])?)?")
_PSEUDO = frozenset((b":method", b":scheme", b":path", b":authority"))
_REQUIRED = (b":method", b":scheme", b":path")
#: They are about an HTTP/1.1 connection.
_OF_CONNECTION = frozenset(
    (b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade")
)


def is_request(fields: Fields) -> bool:
    """True if these may begin a request."""
    pseudo: dict[bytes, bytes] = {}
    for position, (name, value) in enumerate(fields):
        if name[:1] != b":":
            return all(map(pseudo.get, _REQUIRED)) and is_trailers(fields[position:])
        if name not in _PSEUDO or name in pseudo or not _PSEUDO_VALUE.fullmatch(value):
            return False
        pseudo[name] = value
    return all(map(pseudo.get, _REQUIRED))


def is_trailers(fields: Fields) -> bool:
    """True if these are regular fields only, and none of them is of HTTP/1.1."""
    return all(
        _NAME.fullmatch(name)
        and _VALUE.fullmatch(value)
        and name not in _OF_CONNECTION
        and (name != b"te" or value == b"trailers")
        for name, value in fields
    )


def content_length(fields: Fields) -> int | None:
    """Return the announced length, -1 without one; None if it makes no sense."""
    lengths = [value for name, value in fields if name == b"content-length"]
    if not lengths:
        return -1
    if len(lengths) > 1 or not re.fullmatch(rb"[0-9]{1,18}", lengths[0]):
        return None
    return int(lengths[0])
