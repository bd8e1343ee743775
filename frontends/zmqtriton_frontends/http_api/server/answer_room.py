"""The room in the ledger of one answer over HTTP, until its client has read it."""

from __future__ import annotations

from collections.abc import Iterable, Sized

from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.errors import TOO_MANY_UNREAD, Unavailable
from zmqtriton_frontends.process.arrivals import Arrivals
from zmqtriton_frontends.process.ledger import Share

_LENGTH = b"content-length"


class AnswerRoom:
    def __init__(self, share: Share) -> None:
        self.share = share
        self._arrivals: Arrivals | None = None

    def admits(self, headers: Iterable[tuple[bytes, bytes]], body: Sized) -> bool:
        """Account for an answer that the client may leave unread; False if that is too much.

        Its headers say how long it is, or `body` is the first part of a stream.
        """
        lengths = [int(value) for name, value in headers if name == _LENGTH]
        size = lengths[0] if lengths else len(body)
        # what it was written from
        self.share.release()
        if self._arrivals is not None:
            self._arrivals.pass_on()
        return size <= INLINE_BYTES or self.share.take(size)

    async def wait(self, size: int) -> None:
        """Wait for room for the answer, or a part of it, that is about to be written.

        Raises Unavailable if there is none for long.
        """
        arrivals = self._arrivals
        if arrivals is not None and arrivals.pass_on():
            self.share.add(size)
        elif not await self.share.wait(size):
            raise Unavailable(TOO_MANY_UNREAD)

    def arrivals(self) -> Arrivals:
        """Return the room of responses of a stream that wait to be written."""
        self._arrivals = Arrivals(self.share.another())
        return self._arrivals
