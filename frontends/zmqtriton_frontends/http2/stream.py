"""One stream of HTTP/2: its state, and what of it waits to be sent.

connection.py moves it. Classes that answer requests derive from it, for what is to be done with
what a client sends.
"""

from __future__ import annotations

from collections import deque
from typing import Any

#: How much a client may send on a stream before it hears from us. What fits costs no round trip,
#: and gRPC's own library sends it as one frame.
WINDOW_BYTES = 1 << 20

_NOWHERE = memoryview(b"")


class Stream:
    """Lives from its first header until both sides have ended it, or one has reset it."""

    __slots__ = (
        "announced",
        "connection",
        "credit",
        "expected",
        "has_ended",
        "has_turn",
        "id",
        "is_holding",
        "is_open",
        "kept_bytes",
        "outgoing",
        "outgoing_bytes",
        "trailers",
        "was_ended",
        "window",
        "window_target",
    )

    def __init__(self, connection: Any, number: int) -> None:
        self.connection = connection
        self.id = number
        #: What we may send. Below 0 if the client has reduced the window.
        self.window = connection.first_window
        #: What the client may send, and what that is to be raised to.
        self.credit = self.window_target = WINDOW_BYTES
        #: What the client has announced and not sent; 0 if unknown.
        self.expected = 0
        #: Bytes still expected by content-length; -1 without the header.
        self.announced = -1
        #: Set while nothing more is wanted: the credit is not raised.
        self.is_holding = False
        #: The client has sent everything.
        self.was_ended = False
        #: We have given everything, though some of it may still wait here.
        self.has_ended = False
        #: Neither reset nor ended by both sides.
        self.is_open = True
        #: What it takes while it is open, its headers among it.
        self.kept_bytes = 0
        #: Among those that may send now.
        self.has_turn = False
        self.outgoing: deque[memoryview] = deque()
        self.outgoing_bytes = 0
        #: The header block that ends it, to be sent after all data.
        self.trailers: bytes | None = None

    @property
    def is_silent(self) -> bool:
        """True if nothing has come of what its headers announce."""
        return False

    @property
    def is_amid_message(self) -> bool:
        """True if a part of something has come that is of no use without the rest."""
        return False

    def expire(self) -> None:
        """Take note that nothing has come for long; end a stream that cannot go on so."""

    # Events of the client; none of these may raise.

    def on_begin(self) -> None:
        """The first event; from now on it may be answered."""

    def on_data(self, data: memoryview) -> None:
        """Data, to be copied or used before this returns."""

    def room(self) -> memoryview:
        """Return where the next data may be written in place of on_data(); empty if nowhere."""
        return _NOWHERE

    def on_filled(self, size: int) -> None:
        """So many bytes were written there."""

    def on_end(self) -> None:
        """No more will come."""

    def on_reset(self) -> None:
        """The client has gone, or wants no answer; nothing more can be sent."""

    def on_sent(self) -> None:
        """All data that were to be sent are on their way."""
