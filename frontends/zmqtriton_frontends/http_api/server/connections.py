"""The open connections of one process, and what they share."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from zmqtriton_frontends.http_api.server.connection import Connection
from zmqtriton_frontends.http_api.server.fast_path import FastPath
from zmqtriton_frontends.process.descriptors import most_connections
from zmqtriton_frontends.process.ledger import Application, Ledger

_log = logging.getLogger(__name__)


class Connections:
    def __init__(
        self,
        application: Application,
        fast_path: FastPath | None,
        ledger: Ledger,
        now: Callable[[], float],
    ) -> None:
        self._application = application
        self._fast_path = fast_path
        self.ledger = ledger
        self.now = now
        self.is_leaving = self.is_refusing = False
        #: The oldest first.
        self._open: dict[Connection, None] = {}
        #: How many there may be.
        self.most = most_connections()

    def make(self, below: Any = None) -> Connection:
        """Make a connection for the loop, perhaps one whose transport encrypts for another."""
        connection = Connection(self, self._application, self._fast_path)
        connection.below = below
        return connection

    def make_slow(self, application: Application) -> Connection:
        """Make a connection to another application, all of whose requests take the long way."""
        return Connection(self, application)

    def add(self, connection: Connection) -> None:
        if len(self._open) >= self.most:
            self._make_room()
        self._open[connection] = None

    def _make_room(self) -> None:
        """Close the idle connection that has been open for longest, if there is one."""
        for connection in self._open:
            if connection.is_idle:
                connection.close()
                return

    def remove(self, connection: Connection) -> None:
        self._open.pop(connection, None)

    def check(self) -> None:
        """Check all connections. To be called once a second."""
        now = self.now()
        for connection in tuple(self._open):
            try:
                connection.check(now)
            except Exception:  # noqa: BLE001 - an edge: a defect ends one connection, not all
                _log.exception("a connection could not be checked, and is closed")
                connection.channel.abort()

    @property
    def has_any(self) -> bool:
        return bool(self._open)

    @property
    def are_idle(self) -> bool:
        return all(connection.is_idle for connection in self._open)

    def refuse_requests(self) -> None:
        """Refuse new requests from now on, because the server is exiting."""
        self.is_leaving = self.is_refusing = True
        for connection in tuple(self._open):
            connection.refuse_unsent()

    def close(self) -> None:
        for connection in tuple(self._open):
            connection.close()
