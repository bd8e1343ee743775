"""The opening of the server to its clients: the order of the processes, and when it is complete.

A process counts as open when it reports this, with or without services of its own. A process that
reports nothing is named in the log and in the status. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from zmqtriton.roles import ARBITER, GRPC, HTTP, OPENING_ROLES
from zmqtriton.supervisor.actions import PrepareToListen, TellOpen
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.story import Promise
from zmqtriton_floor import wire

#: These open after gRPC, as in Triton: a client that finds the server ready over HTTP may use gRPC.
_OPENING_LAST = frozenset({ARBITER, HTTP})
#: If gRPC does not come up in this time, HTTP opens without it.
_AWAIT_GRPC_S = 5.0


class Opening:
    def __init__(
        self,
        plan: Plan,
        roles: Iterable[str],
        tell_to_listen: Callable[[Callable[[str], bool]], None],
    ) -> None:
        """Set up; `tell_to_listen` lets those processes listen whose role passes a test."""
        self._plan = plan
        #: Gunicorn forks the processes that open HTTP.
        self._awaited = {HTTP if r == ARBITER else r for r in roles if r in OPENING_ROLES}
        self._opened: set[str] = set()
        self.has_begun = self._includes_last = False
        self._services: set[wire.ServiceAddress] = set()
        self._tell_to_listen = tell_to_listen
        #: Promise that is kept when clients can connect to every service.
        self.completed = Promise[None]()

    def begin(self) -> None:
        """Let clients connect."""
        self.has_begun = True
        self._plan.enqueue(PrepareToListen())
        self._tell_to_listen(lambda role: role not in _OPENING_LAST)
        if GRPC in self._awaited:
            self._plan.call_later(_AWAIT_GRPC_S, self._open_last)
        else:
            self._open_last()

    def _open_last(self) -> None:
        if not self._includes_last:
            self._includes_last = True
            self._tell_to_listen(lambda role: role in _OPENING_LAST)

    def has_reached(self, role: str) -> bool:
        """True if a new process of this role listens at once."""
        return self._includes_last or (self.has_begun and role not in _OPENING_LAST)

    def record(self, role: str, message: wire.Opened) -> None:
        """Record that a process of `role` has opened; the first one of each role counts."""
        was_complete = self.is_complete
        for each in message.services:
            if each not in self._services:
                self._services.add(each)
                self._plan.log("I", f"Started {each.service} at {each.address}")
        self._opened.add(role)
        if self.is_complete and not was_complete:
            self._plan.enqueue(TellOpen())
            self.completed()
        if role == GRPC:
            self._open_last()

    @property
    def is_complete(self) -> bool:
        """True once a process of every role has opened; it stays True while one is replaced."""
        return self.has_begun and self._awaited <= self._opened
