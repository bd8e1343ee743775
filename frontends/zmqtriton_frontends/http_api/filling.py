"""A body's bytes go from the socket straight to where they are wanted.

While it lasts this is the protocol of a connection, in the place of gunicorn's, which would copy
them four times. Started and ended by connections.py; knows nothing of what the bytes are.
"""

from __future__ import annotations

import asyncio
from typing import Any


class Filling(asyncio.BufferedProtocol):
    """Fills a view; whatever else happens to the connection is told to its owner."""

    def __init__(self, owner: Any, view: memoryview) -> None:
        self._owner = owner
        self._rest = view
        self._last = view[-1:]
        #: Done when all of it has come; cancelled by who gives up.
        self.whole: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def stop(self) -> int:
        """The view is not touched any more; how many bytes of it were not filled."""
        missing = len(self._rest)
        # uvloop keeps this object for longer.
        self._rest = self._last = memoryview(b"")
        return missing

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._rest

    def buffer_updated(self, nbytes: int) -> None:
        self._rest = self._rest[nbytes:]
        self._owner.count(nbytes)
        if not self._rest:
            # Before another byte can arrive, which would be the next request's.
            self._owner.filled(bytes(self._last))
            if not self.whole.done():
                self.whole.set_result(None)

    def eof_received(self) -> bool | None:
        kept_open: bool | None = self._owner.eof_received()
        return kept_open

    def connection_lost(self, exc: Exception | None) -> None:
        self.whole.cancel()
        self._owner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._owner.pause_writing()

    def resume_writing(self) -> None:
        self._owner.resume_writing()
