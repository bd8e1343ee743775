"""The room in the ledger of one answer over HTTP, until its client has read it."""

from __future__ import annotations

from collections.abc import Iterable, Sized

from zmqtriton_floor.arena import INLINE_BYTES
from zmqtriton_floor.errors import TOO_MANY_UNREAD, Unavailable
from zmqtriton_frontends.process.arrivals import Arrivals
from zmqtriton_frontends.process.ledger import Share

_LENGTH = b"content-length"
#: Of an answer that had room while it was written this part more has it, too.
_MARKS_PART = 8


class AnswerRoom:
    def __init__(self, share: Share) -> None:
        self.share = share
        #: How much of it is for what is being written.
        self._promised = 0
        self._arrivals: Arrivals | None = None

    def admits(self, headers: Iterable[tuple[bytes, bytes]], body: Sized) -> bool:
        """Account for an answer that the client may leave unread; False if that is too much.

        Its headers say how long it is, or `body` is the first part of a stream.
        """
        lengths = [int(value) for name, value in headers if name == _LENGTH]
        size = lengths[0] if lengths else len(body)
        if self._arrivals is not None:
            self._arrivals.pass_on()
        # for what it was written from, of which it differs by marks alone; what follows the first
        # part of a stream has its own
        if lengths:
            self._promised = 0
        promised = self._promised
        room = self.share.held - promised
        if size <= room + room // _MARKS_PART:
            self.share.hold(size + promised)
            return True
        self.share.hold(promised)
        return size <= INLINE_BYTES or self.share.take(size)

    async def wait(self, size: int) -> None:
        """Wait for room for the answer, or a part of it, that is about to be written.

        Raises Unavailable if there is none for long. A stream says by made() how large it became.
        """
        arrivals = self._arrivals
        if arrivals is not None and arrivals.pass_on():
            self.share.add(size)
        elif not await self.share.wait(size):
            raise Unavailable(TOO_MANY_UNREAD)
        self._promised += size

    def made(self, size: int) -> None:
        """Note that a part of a stream was written, which may be larger than was expected."""
        promised, self._promised = self._promised, 0
        if promised:
            self.share.add(size - promised)

    def sent(self) -> None:
        """Leave all written bytes to the account of the answer that is being sent."""
        self.share.hold(self._promised)

    def arrivals(self) -> Arrivals:
        """Return the room of responses of a stream that wait to be written."""
        self._arrivals = Arrivals(self.share.another())
        return self._arrivals
