"""The open connections of one process, and what they share.

There are at most as many as there are descriptors for. The idle ones make room for new ones; while
none is idle, nothing is accepted, and those who connect wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from zmqtriton_frontends.http_api.server.connection import Connection
from zmqtriton_frontends.http_api.server.fast_path import FastPath
from zmqtriton_frontends.http_api.server.listener import Listener
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
        #: Where they come from.
        self.listeners: list[Listener] = []
        self._is_full = False

    def make(self, below: Any = None) -> Connection:
        """Make a connection for the loop, perhaps one whose transport encrypts for another."""
        connection = Connection(self, self._application, self._fast_path)
        connection.below = below
        return connection

    def make_slow(self, application: Application) -> Connection:
        """Make a connection to another application, all of whose requests take the long way."""
        return Connection(self, application)

    def add(self, connection: Connection) -> None:
        if len(self._open) >= self.most and not self._make_room():
            self._is_full = True
            for listener in self.listeners:
                listener.pause()
        self._open[connection] = None

    def _make_room(self) -> bool:
        """Close the idle connection that has been open for longest; False if there is none."""
        for connection in self._open:
            if connection.is_idle and not connection.channel.is_closing:
                connection.close()
                return True
        return False

    def remove(self, connection: Connection) -> None:
        self._open.pop(connection, None)
        self._accept_again()

    def _accept_again(self) -> None:
        if self._is_full and len(self._open) < self.most:
            self._is_full = False
            for listener in self.listeners:
                listener.resume()

    def check(self) -> None:
        """Check all connections. To be called once a second."""
        now = self.now()
        for connection in tuple(self._open):
            try:
                connection.check(now)
            except Exception:  # noqa: BLE001 - an edge: a defect ends one connection, not all
                _log.exception("a connection could not be checked, and is closed")
                connection.channel.abort()
        if self._is_full:
            self._make_room()  # of those that have become idle
        else:
            for listener in self.listeners:
                listener.resume()  # if the last attempt failed

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
