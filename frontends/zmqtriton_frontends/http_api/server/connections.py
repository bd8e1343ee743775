"""The open connections of one process, and what they share.

There are at most as many as there are descriptors for. Those whose clients do not go on make room
for new ones; while all do, nothing is accepted, and those who connect wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from zmqtriton_frontends.http_api.server.connection import Connection
from zmqtriton_frontends.http_api.server.inference_heads import InferenceHeads
from zmqtriton_frontends.process.descriptors import max_connections
from zmqtriton_frontends.process.ledger import Application, Ledger
from zmqtriton_frontends.process.room import Room
from zmqtriton_frontends.process.turns import Turns
from zmqtriton_frontends.serving.listener import Listener

_log = logging.getLogger(__name__)


class Connections:
    def __init__(
        self,
        application: Application,
        inferences: InferenceHeads | None,
        ledger: Ledger,
        now: Callable[[], float],
    ) -> None:
        self._application = application
        self._inferences = inferences
        self.ledger = ledger
        self.turns = Turns(asyncio.get_running_loop().call_soon)
        self.now = now
        self.is_leaving = self.is_ending = False
        self.room: Room[Connection] = Room(max_connections(), now)
        #: Where they come from.
        self.listeners: list[Listener] = []
        self._is_full = False

    def make(self, below: Any = None) -> Connection:
        """Make a connection for the loop, perhaps one whose transport encrypts for another."""
        connection = Connection(self, self._application, self._inferences)
        connection.below = below
        return connection

    def make_other(self, application: Application, below: Any = None) -> Connection:
        """Make a connection to another application, which answers all requests itself."""
        return Connection(self, application)

    def add(self, connection: Connection) -> None:
        if self.room.is_full and not self._make_room():
            self._is_full = True
            for listener in self.listeners:
                listener.pause()
        self.room.add(connection)

    def _make_room(self) -> bool:
        """Close connections whose clients do not go on; False without any."""
        still = self.room.take_still()
        for connection in still:
            if connection.is_idle:
                connection.close()
            else:
                connection.channel.abort()
        return bool(still)

    def remove(self, connection: Connection) -> None:
        self.room.remove(connection)
        self._accept_again()

    def _accept_again(self) -> None:
        if self._is_full and not self.room.is_full:
            self._is_full = False
            for listener in self.listeners:
                listener.resume()

    def check(self) -> None:
        """Check all connections. To be called once a second."""
        now = self.now()
        for connection in self.room:
            try:
                connection.check(now)
            except Exception:  # noqa: BLE001 - an edge: a defect ends one connection, not all
                _log.exception("a connection could not be checked, and is closed")
                connection.channel.abort()
        self.room.check()
        if self._is_full:
            self._make_room()  # of those that have become idle, or do not go on
        else:
            for listener in self.listeners:
                listener.resume()  # if the last attempt failed

    @property
    def has_any(self) -> bool:
        return bool(len(self.room))

    def end(self, *, is_followed: bool) -> None:
        """Make the next answer on each connection its last, also amid the sequences it has now.

        Where another server follows, those that have crossed with that end here: no other one
        knows them.
        """
        self.is_leaving, self.is_ending = True, not is_followed
        for connection in self.room:
            connection.sequences.clear()

    def end_still(self, still_s: float) -> None:
        """End those on which nothing has been under way for so long."""
        now = self.now()
        for connection in self.room:
            connection.end_if_still(now, still_s)

    def close(self) -> None:
        for connection in self.room:
            connection.close()
