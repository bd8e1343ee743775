"""The room for responses of a stream that have arrived and wait for their reader.

They are in the memory of a model's process, or of this one. A reader that makes something else of a
response may take it over into its own account; until then it is counted here.
"""

from __future__ import annotations

import sys

from zmqtriton_frontends.process.ledger import Share

#: Bytes of unread responses that are not booked: they are part of what an open stream costs.
FREE_BYTES = 16 << 10
#: Bytes of room that are taken in one step.
_STEP_BYTES = 32 << 10
#: Bytes that a client has to move between two looks to count as going on.
_MOVING_BYTES = 8 << 10


class Arrivals:
    """The unread responses of one request; without a share, their memory has no limit."""

    __slots__ = ("_borrowed", "_moved", "_share", "delivered", "room", "unread")

    def __init__(self, share: Share | None = None) -> None:
        self._share = share
        #: Bytes that have arrived and are not read, with the bytes that the reader has now.
        self.unread = self.delivered = 0
        #: Bytes of unread responses that there is room for.
        self.room = FREE_BYTES if share is not None else sys.maxsize
        #: Bytes of this room that were borrowed, because the share was full.
        self._borrowed = 0
        #: Bytes that the client had moved at the last look.
        self._moved = 0

    @property
    def held(self) -> int:
        """Return the bytes that were taken or borrowed from the share."""
        return self.room - FREE_BYTES if self._share is not None else 0

    def admit(self) -> bool:
        """Take room for arrived bytes; False without room."""
        share, more = self._share, _in_steps(self.unread - self.room)
        if share is None:
            return True
        if not share.take(more):
            if not share.borrow(more):
                return False
            self._borrowed += more
        self.room += more
        return True

    def has_room(self, size: int) -> bool:
        """Return whether there is room for `size` more bytes."""
        return self._share is None or self._share.has_room(size)

    def take(self) -> None:
        """Give back the room of the responses that the reader has taken."""
        self.unread -= self.delivered
        self.delivered = 0
        less = self.held - _in_steps(self.unread - FREE_BYTES)
        share = self._share
        if share is None or less <= 0:
            return
        self.room -= less
        back = min(less, self._borrowed)
        if back:
            self._borrowed -= back
            share.borrow(-back)
        share.add(back - less)

    def pass_on(self) -> bool:
        """Leave the reader's response to its own account; return whether it was counted here.

        The reader must account for it at once, since there is room for as much now.
        """
        if self._share is None:
            return False
        before = self._share.held
        self.take()
        return self._share.held < before

    def release(self) -> None:
        """Give back all room: the reader has left."""
        self.unread = self.delivered = 0
        self.take()

    def is_moving(self) -> bool:
        """Return whether the client has read since the last look, or waits for the server."""
        if self._share is None or self._share.client.end is None:
            return True
        client = self._share.client
        before, self._moved = self._moved, client.moved()
        return self._moved - before >= _MOVING_BYTES or not client.owes()


def _in_steps(size: int) -> int:
    return -(-max(0, size) // _STEP_BYTES) * _STEP_BYTES
