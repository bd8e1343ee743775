"""The writing of responses: status lines, fields, chunks."""

from __future__ import annotations

import time
from collections.abc import Iterable
from email.utils import formatdate
from http import HTTPStatus

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
CLOSE = b"Connection: close\r\n"
#: For clients of HTTP/1.0, who would not expect it.
KEEP_ALIVE = b"Connection: keep-alive\r\n"

#: The status lines of all statuses that have a phrase.
STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
_date: tuple[int, bytes] = (0, b"")


def status_line(status: int) -> bytes:
    line = STATUS_LINES.get(status)
    return line if line is not None else f"HTTP/1.1 {status} \r\n".encode()


def date() -> bytes:
    """Return the field with the time, which changes once a second."""
    global _date
    now = int(time.time())
    if now != _date[0]:
        _date = now, f"Date: {formatdate(now, usegmt=True)}\r\n".encode()
    return _date[1]


def fields(rows: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Write fields. Raises ValueError for a value that would be more than one."""
    written = b"".join([b"%s: %s\r\n" % row for row in rows])
    if written.count(b"\n") != written.count(b"\r\n") or b"\0" in written:
        raise ValueError("a header field with a line in it")
    return written


def chunk(data: bytes | memoryview) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def has_no_body(method: str, status: int) -> bool:
    return method == "HEAD" or status in (204, 304) or status < 200
