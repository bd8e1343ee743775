"""Room for new connections where there are as many as there may be.

Those make room whose clients have not gone on for longest, idle or amid a request, all of one
address: that with the most of them. However many connections a client has, it does not close those
of others; and one that waits for the server keeps its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from zmqtriton_frontends.process.ledger import Client

#: A connection that is not idle makes room when its client has hardly gone on for so long.
STILL_S = 5.0
#: Or, if it waits for the server, for so long: it may be a stream that is forgotten.
WAITING_S = 300.0
#: A client that sends less between two checks does not go on.
_LEAST_BYTES = 1024
#: This part of all makes room at once, so that not all are looked at for each new one.
_PART = 64


class Occupant(Protocol):
    @property
    def client(self) -> Client:
        """Return its client."""

    @property
    def is_idle(self) -> bool:
        """Return whether nothing is in flight on it."""


T = TypeVar("T", bound=Occupant)


class Room(Generic[T]):
    """The open connections of one kind, the oldest first."""

    def __init__(self, most: int, now: Callable[[], float]) -> None:
        self.most = most
        self._now = now
        #: How much each client had moved when it went on last, and when that was.
        self._open: dict[T, tuple[int, float]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._open))

    def add(self, connection: T) -> None:
        self._open[connection] = (0, self._now())

    def remove(self, connection: T) -> None:
        self._open.pop(connection, None)

    @property
    def is_full(self) -> bool:
        return len(self._open) >= self.most

    def check(self) -> None:
        """Note who has gone on. To be called once a second."""
        if len(self._open) * 2 < self.most:
            return
        now = self._now()
        for connection, (moved, _) in self._open.items():
            at = connection.client.moved()
            if at - moved >= _LEAST_BYTES:
                self._open[connection] = (at, now)

    def take_still(self) -> list[T]:
        """Remove those that make room, and return them to be closed; none if all go on."""
        now = self._now()
        by_address: dict[int, list[tuple[float, T]]] = {}
        for connection, (moved, since) in self._open.items():
            client = connection.client
            if not connection.is_idle:
                if client.moved() - moved >= _LEAST_BYTES:
                    continue
                if now - since < (STILL_S if client.owes() else WAITING_S):
                    continue
            by_address.setdefault(id(client.address), []).append((since, connection))
        if not by_address:
            return []
        found = max(by_address.values(), key=len)
        found.sort(key=lambda pair: pair[0])
        taken = [connection for _, connection in found[: max(1, len(self._open) // _PART)]]
        for connection in taken:
            del self._open[connection]
        return taken
