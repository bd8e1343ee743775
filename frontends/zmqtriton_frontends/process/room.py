"""Room for new connections when the maximum is open.

Connections are closed whose clients have made no progress for longest, idle or amid a request, all
of one address: the address with the most such connections. However many connections a client opens,
other clients keep theirs; and a client that waits for the server keeps its own. Connections that
were never answered are closed first: while many clients connect and send nothing, served clients
keep their connections.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from zmqtriton_frontends.process.ledger import ClientAccount

#: Seconds with hardly any progress of its client after which a connection that is not idle makes
#: room.
STILL_S = 5.0
#: Seconds after which one makes room that was never answered.
NEW_S = 0.5
#: Seconds after which one makes room that waits for the server: it may be a stream that is
#: forgotten.
WAITING_S = 300.0
#: Bytes that a client has to move between two checks to count as going on.
_LEAST_BYTES = 1024
#: Part of all connections, a 64th, that makes room at once, so that not all are looked at for each
#: new one.
_PART = 64
#: Descriptors that are kept for segments of shared memory, files, and connections that have yet to
#: be accepted.
_RESERVED = 96


def max_connections() -> int:
    """Return the maximum of connections, which leaves descriptors for everything else."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, limit - _RESERVED)


class Occupant(Protocol):
    @property
    def client(self) -> ClientAccount:
        """Return the client of the connection."""

    @property
    def is_idle(self) -> bool:
        """Return whether no request or stream is in progress."""

    @property
    def answered_at(self) -> float:
        """Return the time of the last response, or any earlier time; 0 before the first one."""


T = TypeVar("T", bound=Occupant)


class Room(Generic[T]):
    """The open connections of one kind, the oldest first."""

    def __init__(self, limit: int, now: Callable[[], float], *, looks_always: bool = False) -> None:
        """Set up; unless `looks_always`, check() does nothing while there is much room."""
        self.limit = limit
        self._now = now
        self._looks_always = looks_always
        #: Bytes that each connection's client had moved at its last progress, and the time of that.
        self._open: dict[T, tuple[int, float]] = {}
        #: Number of connections that have ever been added.
        self.added = 0

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._open))

    def add(self, connection: T) -> None:
        self.added += 1
        self._open[connection] = (0, self._now())

    def remove(self, connection: T) -> None:
        self._open.pop(connection, None)

    @property
    def is_full(self) -> bool:
        return len(self._open) >= self.limit

    @property
    def has_much(self) -> bool:
        """True if more than half of the room is free."""
        return len(self._open) * 2 < self.limit

    def check(self) -> None:
        """Record which clients have made progress. Call this once a second."""
        if self.has_much and not self._looks_always:
            return
        now = self._now()
        for connection, (moved, _) in self._open.items():
            at = connection.client.moved()
            if at - moved >= _LEAST_BYTES:
                self._open[connection] = (at, now)

    def take_still(self) -> list[T]:
        """Remove connections without progress, to be closed; return them, if there are any."""
        now = self._now()
        #: Connections that may make room, the first kind before the others: those that ask
        #: nothing, that stop amid the first request, that do not go on, that have come and not
        #: yet asked, and are idle.
        kinds = tuple[list[tuple[float, T]], ...](([], [], [], [], []))
        are_new = False
        for connection, (moved, since) in self._open.items():
            client, waited = connection.client, now - max(since, connection.answered_at)
            is_idle, is_new = connection.is_idle, not connection.answered_at
            goes_on = not is_idle and client.moved() - moved >= _LEAST_BYTES
            if goes_on or (not is_idle and waited < WAITING_S and not client.owes()):
                continue
            if is_new and waited >= NEW_S:
                kinds[0 if is_idle else 1].append((since, connection))
            elif waited >= STILL_S:
                kinds[2].append((since, connection))
            elif is_idle:
                kinds[3 if is_new else 4].append((since, connection))
            are_new |= is_new and waited < NEW_S
        if are_new:
            kinds[4].clear()  # those that have only just come have their turn before
        still = next(filter(None, kinds), [])
        by_address: dict[int, list[tuple[float, T]]] = {}
        for pair in still:
            by_address.setdefault(id(pair[1].client.address), []).append(pair)
        group = max(by_address.values(), key=len, default=[])
        group.sort(key=lambda pair: pair[0])
        taken = [connection for _, connection in group[: max(1, len(self._open) // _PART)]]
        for connection in taken:
            del self._open[connection]
        return taken
