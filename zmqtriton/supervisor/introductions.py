"""Makes a new process known: its token to the broker first, then its birth message.

Whoever is started before the broker has bound its sockets waits here. Used for every child but the
broker itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from zmqtriton.supervisor.actions import Send
from zmqtriton.supervisor.plan import Plan
from zmqtriton_floor import wire


class Server(NamedTuple):
    """What every process is told of the server."""

    directory: str
    #: JSON
    settings: str
    new_token: Callable[[], bytes]


class Introductions:
    """The broker's serial number, and who waits for it."""

    def __init__(self, plan: Plan, server: Server) -> None:
        self._plan = plan
        self._server = server
        self._epoch = 1
        self._waiting: dict[int, Callable[[], None]] = {}
        self._known: set[int] = set()
        #: 0: there is no broker.
        self.broker = 0
        self._is_broker_ready = False

    def bear_broker(self, serial: int) -> None:
        self.broker = serial
        self._plan.do(Send(serial, self._birth(serial, self._server.new_token(), "broker")))

    def broker_is_ready(self) -> None:
        """Its sockets are bound: whoever waited is introduced now."""
        self._is_broker_ready = True
        waiting, self._waiting = self._waiting, {}
        for introduce in waiting.values():
            introduce()

    def broker_is_gone(self) -> None:
        self.broker, self._is_broker_ready = 0, False

    def introduce(
        self, serial: int, role: str, label: str, pid: int, then: Callable[[], None]
    ) -> None:
        """Calls `then` after the birth message; later, if the broker is not there yet."""

        def now() -> None:
            token = self._server.new_token()
            self._known.add(serial)
            self.tell_broker(wire.Expect(serial, token, role, label, pid))
            self._plan.do(Send(serial, self._birth(serial, token, role)))
            then()

        if self._is_broker_ready:
            now()
        else:
            self._waiting[serial] = now

    def forget(self, serial: int, reason: str) -> None:
        """The process is dead."""
        self._waiting.pop(serial, None)
        if serial in self._known:
            self._known.discard(serial)
            self.tell_broker(wire.Gone(serial, reason))

    def tell_broker(self, message: Any) -> None:
        """Lost where there is no broker."""
        if self.broker:
            self._plan.do(Send(self.broker, message))

    def _birth(self, serial: int, token: bytes, role: str) -> wire.Birth:
        server = self._server
        return wire.Birth(serial, token, role, server.directory, self._epoch, server.settings)
