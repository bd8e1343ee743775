"""A ledger of what the clients of one process make it hold, and how much that may be.

Two kinds are booked: parts of requests that are not complete, and answers that are not read. What
one client may hold is never more than what is left for all others, and of that a part is for those
who hold little: however many come for much, others are served.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from zmqtriton_frontends.process import allocator

#: The key of a request's share in its scope.
SHARE = "zmqtriton.request_share"

#: Who holds no more has a part of all to himself: this one.
SMALL_BYTES = 256 << 10
_SMALL_PART = 8
_WORTH_GIVING_BYTES = 64 << 20

Application = Callable[[Any, Any, Any], Awaitable[None]]


class Book:
    """All bytes of one kind."""

    def __init__(self, limit: int, *, is_bounded: bool = True) -> None:
        """Set up; what is not bounded has room for one who is alone, whatever he holds."""
        self.limit = limit
        self._is_bounded = is_bounded
        self.held = 0
        #: How often there was no room.
        self.refused = 0

    def admits(self, more: int, own: int) -> bool:
        """True if somebody who holds `own` bytes may hold more."""
        wanted, left = own + more, self.limit - self.held
        if wanted <= SMALL_BYTES:
            has_room = more <= left
        elif self.held == own:  # alone
            has_room = not self._is_bounded or more <= left - self.limit // _SMALL_PART
        else:
            has_room = wanted <= left - self.limit // _SMALL_PART
        self.refused += not has_room
        return has_room


class Share:
    """One client's part of a book, or that of one of its requests."""

    __slots__ = ("_book", "held")

    def __init__(self, book: Book) -> None:
        self._book = book
        self.held = 0

    def has_room(self, size: int) -> bool:
        """True if there is room for so many bytes more."""
        return self._book.admits(size, self.held)

    def take(self, size: int) -> bool:
        """Hold so many bytes more; False if there is no room for them."""
        if not self._book.admits(size, self.held):
            return False
        self.held += size
        self._book.held += size
        return True

    def add(self, size: int) -> None:
        """Hold more, or less, whatever room there is."""
        self.held += size
        self._book.held += size

    def hold(self, size: int) -> None:
        """Hold exactly so many bytes, whatever room there is."""
        self.add(size - self.held)

    def release(self) -> None:
        self._book.held -= self.held
        self.held = 0


class Ledger:
    def __init__(
        self,
        limit: int,
        *,
        give_back: Callable[[], None] = allocator.give_back_memory,
        freed: allocator.Freed = allocator.freed,
    ) -> None:
        """Set up; each book may hold so many bytes."""
        self.requests = Book(limit)
        # an answer is there already, and there are models with large ones
        self.answers = Book(limit, is_bounded=False)
        self._give_back = give_back
        self._freed = freed
        #: The most that was held since memory was given back.
        self._peak = 0

    def figures(self) -> dict[str, int]:
        """Return what is held, and how often there was no room, of each kind."""
        return {
            "requests_bytes": self.requests.held,
            "answers_bytes": self.answers.held,
            "requests_refused": self.requests.refused,
            "answers_refused": self.answers.refused,
        }

    def check(self) -> None:
        """Give memory back if much less is held than was. To be called once a second."""
        held = self.requests.held + self.answers.held
        if self._peak - held > _WORTH_GIVING_BYTES or self._freed.is_likely():
            self._give_back()
            self._peak = 0
        self._peak = max(self._peak, held)


def with_share(application: Application, book: Book) -> Application:
    """Give each request of an ASGI application a share."""

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        scope[SHARE] = share = Share(book)
        try:
            await application(scope, receive, send)
        finally:
            share.release()

    return serve
