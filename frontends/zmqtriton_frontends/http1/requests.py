"""Reads requests from the bytes of one client, one after the other.

Whoever owns the bytes asks for a head, then for the body as it comes, and says when the request is
answered; so nothing of a request is read before its turn, and what waits is what has come.
"""

from __future__ import annotations

from zmqtriton_frontends.http1 import heads
from zmqtriton_frontends.http1.chunks import ChunkedBody
from zmqtriton_frontends.http1.heads import Head

_END = b"\r\n\r\n"


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
