"""A ledger of what the clients of one process make it hold, and how much that may be.

Memory for a client takes room here before it is allocated: parts of requests, inflated data, the
headers of open streams, responses until they are read. All of it comes out of one budget. One
client may never hold more than is left for all others, nor may all clients of one address. A part
of the budget is kept for clients that hold little, so these are served however many clients need
much. If room is short, clients that hold it and make no progress are disconnected.

A `Share` is the only place that counts. The protocols decide how large a share is, and differ in
that: `http_api.server.asgi_exchange` has one response after the other, whose length is known or
grows while it is written; `grpc_api.transport.account` has all streams of a connection, which wait
for each other in one buffer; `grpc_api.inference.outbox` takes steps, since its messages are small
and many.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from zmqtriton_frontends.process.client_progress import ClientProgress
from zmqtriton_frontends.process.futures import wake

#: Bytes that a small client may hold, and the part of the budget, an eighth, that is kept for
#: small clients.
SMALL_BYTES = 256 << 10
SMALL_PART = 8
#: Seconds that something waits for room.
WAIT_S = 30.0
#: Checks in a row without progress after which a client is ended, while room is short.
_STILL_CHECKS = 2
#: Part of the budget, a quarter, that one check makes free at most.
_MAX_MADE = 4
#: Part of what a client holds; if it moves no more than that between two checks, it makes no
#: progress.
_MOVING_PART = 512
#: Bytes that may be held beyond the budget, if they are there already and would be lost: half of
#: them by an address, or one thing of any size.
BORROWED_BYTES = 64 << 20

Application = Callable[[Any, Any, Any], Awaitable[None]]


@dataclass(eq=False)
class HeldBytes:
    """All held bytes of the process."""

    limit: int
    held: int = 0
    #: Bytes that are borrowed in addition to the share.
    borrowed: int = 0
    #: Largest size that was refused since the last check, in bytes.
    missing: int = 0
    #: Futures that wait until less is held.
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)

    def wake(self) -> None:
        """Wake all waiting calls, which then try to get room again."""
        waiting, self.waiting = self.waiting, deque()
        for future in waiting:
            wake(future)


class Book:
    """The bytes of one kind, such as requests or responses."""

    def __init__(
        self,
        limit: int = 0,
        *,
        is_bounded: bool = True,
        is_shared: bool = False,
        budget: HeldBytes | None = None,
    ) -> None:
        """Set up.

        If the book is not bounded, it has room for one thing of any size while little is held. If
        it is shared, no client gets more than is left for others, even if there are no others.
        """
        self.budget = HeldBytes(limit) if budget is None else budget
        self._is_bounded = is_bounded
        self._is_shared = is_shared
        self.held = 0
        #: Number of times that there was no room.
        self.refused = 0

    @property
    def limit(self) -> int:
        return self.budget.limit

    def admits(self, more: int, own: int, of_address: int) -> bool:
        """Return whether a client that holds `own` bytes may hold more.

        `of_address` is held by all clients of the same address.
        """
        budget = self.budget
        limit = budget.limit - budget.held - budget.limit // SMALL_PART
        if own + more <= limit and of_address + more <= limit:
            return True  # nearly always
        has_room = self._has_room(more, own, is_one=True)
        if has_room and of_address > own:
            if own + more <= SMALL_BYTES < of_address + more:
                # of the part for those who hold little one address has half
                has_room = more <= limit + budget.limit // SMALL_PART // 2
            else:
                has_room = self._has_room(more, of_address, is_one=False)
        if not has_room:
            self.refused += 1
            budget.missing = max(budget.missing, more)
        return has_room

    def _has_room(self, more: int, own: int, *, is_one: bool) -> bool:
        budget = self.budget
        total, left = own + more, budget.limit - budget.held
        if total <= SMALL_BYTES:
            return more <= left
        part = budget.limit // SMALL_PART
        is_alone = budget.held - own <= part
        if is_alone and own <= SMALL_BYTES and not self._is_bounded:
            return True
        if is_alone and not (self._is_shared and is_one):
            return more <= left - part
        return total <= left - part


@dataclass(slots=True, eq=False)
class Address:
    """All clients of one address."""

    clients: int = 0
    held: int = 0
    borrowed: int = 0


class ClientAccount:
    """One client: a connection, or a call where connections are not seen."""

    __slots__ = (
        "_still",
        "_was_at",
        "address",
        "end",
        "held",
        "ledger",
        "moved",
        "owes",
        "place",
        "progress",
    )

    def __init__(
        self,
        ledger: Ledger,
        place: str = "",
        moved: Callable[[], int] | None = None,
        owes: Callable[[], bool] | None = None,
        end: Callable[[], None] | None = None,
    ) -> None:
        """Set up.

        `moved` counts the bytes that the client has sent and read, `owes` returns whether it is the
        client's turn to send or read, and `end`, if given, disconnects it.
        """
        self.ledger = ledger
        #: Address of the client, or of the proxy that it comes by; "" if unknown.
        self.place = place
        self.address = ledger.enter(place, self)
        self.held = 0
        self.moved = moved or int
        self.owes = owes or bool
        self.end = end
        #: Progress with a request that comes, or an answer that is sent.
        self.progress = ClientProgress()
        self._was_at = 0
        #: Number of checks in a row at which it had hardly moved.
        self._still = 0

    def look(self) -> bool:
        """Return whether the client has hardly moved for long. Call this once a second."""
        at = self.moved()
        is_still = at - self._was_at <= self.held // _MOVING_PART and self.owes()
        self._still = self._still + 1 if is_still else 0
        self._was_at = at
        return self._still >= _STILL_CHECKS

    def leave(self) -> None:
        """Leave the ledger; the client's shares must have been released."""
        self.ledger.leave(self.place, self)
        # the owner of these methods refers to this: neither should wait for a garbage collection
        self.moved, self.owes, self.end = int, bool, None


class Share:
    """The part of a book that one client holds, or one of its requests."""

    __slots__ = ("_book", "client", "held")

    def __init__(self, book: Book, client: ClientAccount) -> None:
        self._book = book
        self.client = client
        self.held = 0

    def another(self) -> Share:
        """Return another part of the same book for the same client."""
        return Share(self._book, self.client)

    def has_room(self, size: int) -> bool:
        """Return whether there is room for `size` more bytes."""
        client = self.client
        return self._book.admits(size, client.held, client.address.held)

    def take(self, size: int) -> bool:
        """Hold `size` more bytes; False if there is no room for them."""
        book, client = self._book, self.client
        if not book.admits(size, client.held, client.address.held):
            return False
        client.held += size
        client.address.held += size
        # as add() does, which would be one call more for each large answer
        self.held += size
        book.held += size
        budget = book.budget
        budget.held += size
        return True

    async def wait(self, size: int, within_s: float = 0.0) -> bool:
        """Hold `size` more bytes as soon as there is room; False if no room came in time.

        Waits for at most `within_s`, or else WAIT_S.
        """
        loop, budget = asyncio.get_running_loop(), self._book.budget
        end = loop.time() + (within_s or WAIT_S)
        while not self.take(size):
            left_s = end - loop.time()
            if left_s <= 0:
                return False
            future = loop.create_future()
            budget.waiting.append(future)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(future, left_s)
        return True

    def borrow(self, size: int) -> bool:
        """Hold bytes beyond the limit, which exist already; False if that is too much.

        Borrow a negative number of bytes to give them back.
        """
        budget, address = self._book.budget, self.client.address
        if size > 0 and budget.borrowed and budget.borrowed + size > BORROWED_BYTES:
            return False
        if size > 0 and address.borrowed and address.borrowed + size > BORROWED_BYTES // 2:
            return False
        address.borrowed += size
        budget.borrowed += size
        return True

    def add(self, size: int) -> None:
        """Add bytes to the share regardless of the limit; remove some if `size` is negative."""
        self.held += size
        book, client = self._book, self.client
        book.held += size
        budget = book.budget
        budget.held += size
        client.held += size
        client.address.held += size
        if size < 0 and budget.waiting:
            budget.wake()

    def change(self, size: int) -> bool:
        """Add bytes to the share if there is room, else return False; or remove some."""
        if size > 0:
            return self.take(size)
        self.add(size)
        return True

    def hold(self, size: int) -> None:
        """Set the share to exactly `size` bytes, regardless of the limit."""
        if size != self.held:
            self.add(size - self.held)

    def release(self) -> None:
        size, self.held = self.held, 0
        if not size:
            return
        book, client = self._book, self.client
        book.held -= size
        budget = book.budget
        budget.held -= size
        client.held -= size
        client.address.held -= size
        if budget.waiting:
            budget.wake()


def release(*shares: Share | None) -> None:
    """Release the shares that were made."""
    for share in shares:
        if share is not None:
            share.release()


class Ledger:
    def __init__(self, limit: int) -> None:
        """Set up; all clients together may hold `limit` bytes."""
        self.budget = HeldBytes(limit)
        self.requests = Book(budget=self.budget)
        #: Bytes that open streams take, even if nothing is ever sent on them.
        self.streams = Book(is_shared=True, budget=self.budget)
        # an answer is there already, and there are models with large ones
        self.answers = Book(is_bounded=False, is_shared=True, budget=self.budget)
        self._clients: dict[ClientAccount, None] = {}
        self._addresses: dict[str, Address] = {}
        #: Number of refusals at the last check.
        self._refused = 0

    def account(self, place: str = "", **hooks: Callable[[], Any]) -> ClientAccount:
        """Return the account of a new client; `ClientAccount` has the hooks."""
        return ClientAccount(self, place, **hooks)

    def enter(self, place: str, client: ClientAccount) -> Address:
        """Enter a client of an address; return the account of that address."""
        self._clients[client] = None
        address = self._addresses.setdefault(place, Address())
        address.clients += 1
        return address

    def leave(self, place: str, client: ClientAccount) -> None:
        if self._clients.pop(client, self) is None:
            client.address.clients -= 1
            if not client.address.clients:
                del self._addresses[place]

    def figures(self) -> dict[str, int]:
        """Return the held bytes, and the count of refusals, of each kind."""
        return {
            "requests_bytes": self.requests.held + self.streams.held,
            "answers_bytes": self.answers.held,
            "requests_refused": self.requests.refused + self.streams.refused,
            "answers_refused": self.answers.refused,
        }

    def check(self) -> None:
        """While there is no room, disconnect clients that hold most and make no progress.

        Call this once a second.
        """
        budget = self.budget
        refused = self.requests.refused + self.streams.refused + self.answers.refused
        is_short = refused != self._refused or budget.held > budget.limit
        self._refused = refused
        if not is_short:
            return
        part = budget.limit // SMALL_PART
        enough = budget.limit - part - min(budget.missing, budget.limit // _MAX_MADE)
        budget.missing = 0
        still = [one for one in self._clients if one.held and one.end is not None and one.look()]
        still.sort(key=lambda one: -one.held)
        for client in still:
            if budget.held <= enough:
                break
            if client.held <= SMALL_BYTES and budget.held <= budget.limit - part:
                break  # there is room for those who hold little, as this one does
            if client.end is not None:
                client.end()
        if budget.waiting:
            budget.wake()
