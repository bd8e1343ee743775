"""Requests without TLS to a port that speaks it: the answer says so. Does no I/O."""

from __future__ import annotations

_TOLD = b'{"error":"this port speaks TLS: use https://"}'
_ANSWER = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_TOLD), _TOLD)
)


class PlainRequest:
    """The refusal of the request on one connection, however much of it has come."""

    def __init__(self) -> None:
        self.is_complete = False

    def answer(self, data: bytes, /) -> bytes:
        self.is_complete = True
        return _ANSWER
