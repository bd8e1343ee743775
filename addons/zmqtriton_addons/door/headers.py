"""The headers of the door's messages, for the server and for our own client.

A message is a header and, behind it, a frame for each tensor or file that it carries:
    +--------+---------+---------+---
    | header | frame 0 | frame 1 | ...
    +--------+---------+---------+---

The **header** is one msgpack array `[VERSION, verb, id, fields]`, its fields a map. docs/door.md
has the verbs and their fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgpack

from zmqtriton_floor.errors import InvalidArgument, Unsupported

#: Incremented with each incompatible change; answers may get new fields without one.
VERSION = 1
#: A larger header is refused unread.
MAX_HEADER_BYTES = 1 << 20
#: Of a message behind its header.
MAX_FRAMES = 1024
#: Larger frames end their connection.
MAX_FRAME_BYTES = 2**31 - 1
#: The id of errors that are about no request.
NO_ID = 0

_MAX_ID = 2**63 - 1


class Header(NamedTuple):
    """The part of a message that says what it is about."""

    verb: str
    #: The client's number of the request.
    id: int
    fields: dict[str, Any]


class BadHeader(InvalidArgument):
    """Raised for a header that does not decode; `id` is the request's if that much is known."""

    id = NO_ID


def encode(verb: str, id: int, fields: Mapping[str, Any]) -> bytes:
    """Return a header."""
    header: bytes = msgpack.Packer().pack((VERSION, verb, id, fields))
    return header


def decode(header: Any) -> Header:
    """Read a header. Raises BadHeader, and Unsupported for another version."""
    if len(header) > MAX_HEADER_BYTES:
        raise BadHeader(f"a header cannot be larger than {MAX_HEADER_BYTES} bytes")
    try:
        array = msgpack.unpackb(header)
    except (ValueError, TypeError, RecursionError, OverflowError):
        raise BadHeader("the header is not msgpack") from None
    if type(array) is not list or not array or type(array[0]) is not int:
        raise BadHeader("the header is not an array of version, verb, id and fields")
    if array[0] != VERSION:
        raise Unsupported(f"version {array[0]} of the protocol is not spoken, only {VERSION}")
    if len(array) != 4:
        raise BadHeader("the header is not an array of version, verb, id and fields")
    _, verb, number, fields = array
    if type(number) is not int or not NO_ID <= number <= _MAX_ID:
        raise BadHeader(f"the id of a request must be an integer from 1 to {_MAX_ID}")
    if type(verb) is not str or type(fields) is not dict:
        error = BadHeader("the verb must be a string and the fields a map")
        error.id = number
        raise error
    return Header(verb, number, fields)
