"""Reads requests from the bytes of one client, one after the other.

Whoever owns the bytes asks for a head, then for the body as it comes, and says when the request is
answered; so nothing of a request is read before its turn, and what waits is what has come. A body
may come in chunks: RFC 9112, section 7.1.
"""

from __future__ import annotations

import re

from zmqtriton_frontends.http1 import heads
from zmqtriton_frontends.http1.heads import MAX_BODY_BYTES, TOKEN, Head, Refused, body_too_large

_END = b"\r\n\r\n"
#: The line before a chunk; extensions are read over.
_MAX_SIZE_LINE_BYTES = 256
_MAX_TRAILER_BYTES = 8192
#: So many chunks may be as small as they like; with more, they have to have so many bytes each on
#: average, because each costs more to read than its bytes.
_FREE_CHUNKS = 65_536
_MIN_CHUNK_BYTES = 256

_QUOTED = rb'"(?:[\t \x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*"'
_EXTENSION = rb"[ \t]*;[ \t]*" + TOKEN + rb"(?:[ \t]*=[ \t]*(?:" + TOKEN + rb"|" + _QUOTED + rb"))?"
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]+)(?:" + _EXTENSION + rb")*")
_TRAILER = re.compile(rb"(" + TOKEN + rb"):[\t\x20-\x7e\x80-\xff]*")
#: What decides how a message is framed or routed must stand before its body.
_NO_TRAILERS = frozenset(
    (
        b"transfer-encoding",
        b"content-length",
        b"host",
        b"te",
        b"trailer",
        b"connection",
        b"content-encoding",
        b"content-type",
        b"authorization",
        b"cookie",
        b"expect",
    )
)


class ChunkedBody:
    """The state of reading one body. It keeps at most the beginning of a line."""

    def __init__(self) -> None:
        self.is_whole = False
        #: Of the chunk that has begun.
        self._left_bytes = 0
        self._needs_end = False
        self._is_last = False
        self._chunks = 0
        self._bytes = 0
        self._trailer_bytes = 0

    def read(self, data: bytes) -> tuple[bytes, bytes]:
        """Return the body's part of the data, and the rest, which follows or cannot be read yet.

        Raises Refused.
        """
        pieces: list[bytes] = []
        at = 0
        while not self.is_whole:
            if self._left_bytes:
                piece = data[at : at + self._left_bytes]
                pieces.append(piece)
                at += len(piece)
                self._left_bytes -= len(piece)
                if self._left_bytes:
                    break
            if self._needs_end:
                if not b"\r\n".startswith(data[at : at + 2]):
                    raise Refused(400, "Malformed chunk")
                if len(data) < at + 2:
                    break
                at += 2
                self._needs_end = False
            end = self._find_line(data, at)
            if end < 0:
                break
            self._read_line(data[at:end])
            at = end + 2
        return pieces[0] if len(pieces) == 1 else b"".join(pieces), data[at:]

    def _find_line(self, data: bytes, at: int) -> int:
        limit = _MAX_TRAILER_BYTES if self._is_last else _MAX_SIZE_LINE_BYTES
        end = data.find(b"\r\n", at, at + limit)
        if end < 0 and len(data) - at >= limit:
            raise Refused(431 if self._is_last else 400, "Malformed chunk")
        return end

    def _read_line(self, line: bytes) -> None:
        if self._is_last:
            self._read_trailer(line)
        else:
            self._read_size(line)

    def _read_size(self, line: bytes) -> None:
        match = _SIZE_LINE.fullmatch(line)
        if match is None:
            raise Refused(400, "Malformed chunk")
        digits = match[1].lstrip(b"0")
        if len(digits) > 8:
            raise body_too_large()
        size = int(digits or b"0", 16)
        if not size:
            self._is_last = True
            return
        self._chunks += 1
        self._bytes += size
        if self._bytes > MAX_BODY_BYTES:
            raise body_too_large()
        if self._chunks > _FREE_CHUNKS + self._bytes // _MIN_CHUNK_BYTES:
            raise Refused(400, f"Request body has more than {_FREE_CHUNKS} small chunks")
        self._left_bytes = size
        self._needs_end = True

    def _read_trailer(self, line: bytes) -> None:
        if not line:
            self.is_whole = True
            return
        self._trailer_bytes += len(line) + 2
        if self._trailer_bytes > _MAX_TRAILER_BYTES:
            raise Refused(431, f"Request trailers exceed {_MAX_TRAILER_BYTES} bytes")
        match = _TRAILER.fullmatch(line)
        if match is None or match[1].lower() in _NO_TRAILERS:
            raise Refused(400, "Malformed trailer")


class RequestReader:
    __slots__ = (
        "_chunked",
        "_last",
        "_missing",
        "_searched",
        "_unread",
        "head",
        "held",
        "is_whole",
    )

    def __init__(self) -> None:
        #: The request that is being read or answered.
        self.head: Head | None = None
        #: All of it was read.
        self.is_whole = True
        #: What has come and was not read; whoever receives more appends it.
        self.held = b""
        #: Up to here no head ends.
        self._searched = 0
        #: Clients repeat themselves, so the last head is often the next one.
        self._last: Head | None = None
        #: What the body lacks; of chunks it is not known.
        self._missing = 0
        self._chunked: ChunkedBody | None = None
        #: What the chunks and their lines lack, if their head says it.
        self._unread: int | None = None

    @property
    def missing_bytes(self) -> int:
        """The number of bytes that must come before the body is whole; 0 if that is not known."""
        return max(0, self._missing - len(self.held))

    def read_head(self) -> Head | None:
        """Return the next request's head; None if it has not come. Raises Refused."""
        held = self.held
        if held[:2] == b"\r\n":  # one empty line before a request means nothing
            held = held[2:]
        end = held.find(_END, self._searched, heads.MAX_HEAD_BYTES)
        if end < 0:
            if held:
                heads.check_beginning(held)
            self._searched = max(0, len(held) - len(_END))
            return None
        end += len(_END)
        raw = held[:end]
        head = self._last
        if head is None or head.raw != raw:
            self._last = head = heads.read(raw)
        self.head = head
        self.held, self._searched = held[end:], 0
        if head.body_bytes is None:
            self._chunked = ChunkedBody()
            self._unread = head.chunked_bytes
            self.is_whole = False
        else:
            self._missing = head.body_bytes
            self.is_whole = not head.body_bytes
        return head

    def read_body(self) -> bytes:
        """Return what more has come of the body. Raises Refused."""
        held = self.held
        if self._chunked is not None:
            if not held:
                return b""
            body, self.held = self._chunked.read(held)
            self.is_whole = self._chunked.is_whole
            if self._unread is not None:
                self._unread -= len(held) - len(self.held)
                if self._unread < 0 or (self.is_whole and self._unread):
                    raise heads.framed_in_two_ways()
            return body
        if len(held) > self._missing:
            body, self.held = held[: self._missing], held[self._missing :]
        else:
            body, self.held = held, b""
        self._missing -= len(body)
        self.is_whole = not self._missing
        return body

    def skip(self, size: int) -> None:
        """Note that so much of the body was received by somebody else, straight to its place."""
        self._missing -= size
        self.is_whole = not self._missing

    def end(self) -> None:
        """Note that the request is answered: the next bytes are another one."""
        self.head = self._chunked = None
        self.is_whole = True
        self._missing = 0
