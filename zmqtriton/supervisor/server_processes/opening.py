"""The opening of the server to its clients: the order of the processes, and when it is complete.

A process counts as open when it reports this, with or without services of its own. A process that
reports nothing is named in the log and in the status. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from zmqtriton.roles import ARBITER, GRPC, HTTP, OPENING_ROLES
from zmqtriton.supervisor.actions import PrepareToListen, TellOpen
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.story import Promise
from zmqtriton_floor import wire

#: These open after gRPC, as in Triton: a client that finds the server ready over HTTP may use gRPC.
OPENING_LAST = frozenset({ARBITER, HTTP})
#: If gRPC does not come up in this time, HTTP opens without it.
_AWAIT_GRPC_S = 5.0


class ListeningPeers(Protocol):
    def tell_to_listen(self, *, is_last: bool) -> None:
        """Let the processes listen that open last, or the others."""


class Opening:
    def __init__(self, plan: Plan, roles: Iterable[str], peers: ListeningPeers) -> None:
        self._plan = plan
        #: Gunicorn forks the processes that open HTTP.
        self._awaited = {HTTP if r == ARBITER else r for r in roles if r in OPENING_ROLES}
        self._opened: set[str] = set()
        self.has_begun = self._includes_last = False
        self._services: set[wire.ServiceAddress] = set()
        self._peers = peers
        self._has_grpc_opened = Promise[None]()
        #: Promise that is kept when clients can connect to every service.
        self.completed = Promise[None]()

    def begin(self) -> None:
        """Let clients connect."""
        self._plan.tell(self._open())

    async def _open(self) -> None:
        self.has_begun = True
        self._plan.enqueue(PrepareToListen())
        self._peers.tell_to_listen(is_last=False)
        if GRPC in self._awaited:
            await self._plan.within(_AWAIT_GRPC_S, self._has_grpc_opened)
        self._includes_last = True
        self._peers.tell_to_listen(is_last=True)

    def has_reached(self, role: str) -> bool:
        """True if a new process of this role listens at once."""
        return self._includes_last or (self.has_begun and role not in OPENING_LAST)

    def record(self, role: str, message: wire.Opened) -> None:
        """Record that a process of `role` has opened; the first one of each role counts."""
        for each in message.services:
            if each not in self._services:
                self._services.add(each)
                self._plan.log("I", f"Started {each.service} at {each.address}")
        self._opened.add(role)
        if self.is_complete and not self.completed.is_over:
            self._plan.enqueue(TellOpen())
            self.completed()
        if role == GRPC:
            self._has_grpc_opened()

    @property
    def is_complete(self) -> bool:
        """True once a process of every role has opened; it stays True while one is replaced."""
        return self.has_begun and self._awaited <= self._opened
