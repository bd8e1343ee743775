"""What the processes tell a new broker about the time of the old one.

A request that was sent before may have been executed, may be executing, or may never have reached
a stub. Only the stubs know, so such a request waits here until every stub of its model has said
hello. Knows no sockets; the core asks it and acts.
"""

from __future__ import annotations

from collections.abc import Iterable

from zmqtriton.broker.inflight import Inflight
from zmqtriton_floor.wire import FINAL, Outcome

Route = tuple[int, int]
#: A stub, and what it said.
Saying = tuple[int, Outcome, bytes]


class Recovery:
    """Empty and idle in the first broker of a server."""

    def __init__(self) -> None:
        #: Which stub has it and will answer.
        self._received: dict[Route, int] = {}
        #: What stubs have said about it until its asker has asked again, in their order.
        self._said: dict[Route, list[Saying]] = {}
        #: Requests of a generation that wait for its stubs.
        self._waiting: dict[int, list[Inflight]] = {}
        #: Generations of which a stub died without a hello: what it had nobody knows.
        self._uncertain: set[int] = set()

    def hear(
        self, stub: int, received: Iterable[Route], answered: Iterable[tuple[Outcome, bytes]]
    ) -> None:
        """A stub's hello."""
        for peer, own_id in received:
            self._received[peer, own_id] = stub
        for outcome, body in answered:
            self._said[outcome.peer, outcome.id] = [(stub, outcome, body)]

    def keep(self, stub: int, outcome: Outcome, body: bytes) -> bool:
        """A response that came before its asker had asked again; False if it was not expected."""
        route = (outcome.peer, outcome.id)
        if self._received.get(route) != stub:
            return False
        if outcome.flags & FINAL:
            del self._received[route]
        self._said.setdefault(route, []).append((stub, outcome, body))
        return True

    def lose(self, generation: int) -> None:
        """One of its stubs died without a hello."""
        self._uncertain.add(generation)

    def is_uncertain(self, generation: int) -> bool:
        return generation in self._uncertain

    def wait(self, request: Inflight) -> None:
        self._waiting.setdefault(request.generation.number, []).append(request)

    def ready(self, generation: int) -> list[Inflight]:
        """All that waited for the stubs of a generation."""
        return self._waiting.pop(generation, [])

    def executing_at(self, request: Inflight) -> int | None:
        """The stub that has it."""
        return self._received.pop(request.route, None)

    def said_about(self, request: Inflight) -> list[Saying]:
        """The responses that came before this."""
        return self._said.pop(request.route, [])

    def forget(self, peer: int) -> None:
        """A process is dead: nobody will ask again, or answer."""
        self._said = {r: said for r, said in self._said.items() if r[0] != peer}
        self._received = {r: s for r, s in self._received.items() if peer not in (r[0], s)}
