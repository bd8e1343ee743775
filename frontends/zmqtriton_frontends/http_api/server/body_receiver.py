"""Receives a body's bytes from the socket straight to where they are wanted.

The protocol of a connection from its first large body on, in front of gunicorn's, which would copy
them four times. It reads little until a request's headers are there, so that most of the next body
can go straight, too. Knows nothing of what the bytes are.
"""

from __future__ import annotations

import asyncio
from typing import Any

#: Enough for a request's headers, and not much of its body.
_HEADERS_BYTES = 16 * 1024
# One for all connections: what is read into it is taken out in the same turn of the loop.
_scratch = memoryview(bytearray(256 * 1024))
_NOTHING = memoryview(b"")


class BodyReceiver(asyncio.BufferedProtocol):
    """Fills views; all other events of the connection are passed to its owner."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        #: What is still to be filled.
        self._rest = _NOTHING
        self._last = _NOTHING
        #: Done when all of it has come.
        self.whole: asyncio.Future[None]

    def begin(self, view: memoryview) -> None:
        self._rest, self._last = view, view[-1:]
        self.whole = asyncio.get_running_loop().create_future()

    def stop(self) -> int:
        """Stop filling; return how many bytes of the view were not filled."""
        missing = len(self._rest)
        self._rest = self._last = _NOTHING
        return missing

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._rest:
            return self._rest
        return _scratch if self._owner.is_amid_body else _scratch[:_HEADERS_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        if not self._rest:
            self._owner.take(bytes(_scratch[:nbytes]))
            return
        self._rest = self._rest[nbytes:]
        self._owner.count(nbytes)
        if not self._rest:
            self._owner.filled(bytes(self._last))
            if not self.whole.done():
                self.whole.set_result(None)

    def eof_received(self) -> bool | None:
        kept_open: bool | None = self._owner.eof_received()
        return kept_open

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._owner.pause_writing()

    def resume_writing(self) -> None:
        self._owner.resume_writing()
