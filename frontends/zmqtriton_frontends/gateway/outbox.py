"""A frontend's messages to the broker: everything that arises in one turn of the loop together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from zmqtriton_floor import wire
from zmqtriton_frontends.gateway.broker_connection import BrokerConnection, Outgoing
from zmqtriton_frontends.gateway.unanswered import Unanswered
from zmqtriton_frontends.tensors.releases import Releases


class Outbox:
    """Messages for the broker, which wait while there is none."""

    def __init__(self) -> None:
        #: Sent along with anything else, once there are any.
        self.releases: Releases | None = None
        self._loop: asyncio.AbstractEventLoop
        #: None while there is no broker.
        self.connection: BrokerConnection | None = None
        self._outgoing = Outgoing()
        #: Is told of final replies, so that the next broker is not asked again.
        self.unanswered = Unanswered()
        self._is_flush_due = False

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def request(self, row: wire.Request, body: bytes) -> None:
        self._outgoing.requests.append(row)
        self._outgoing.bodies.append(body)
        if not self._is_flush_due:  # as _flush_soon() does, which would be one call more
            self._is_flush_due = True
            self._loop.call_soon(self.flush)

    def cancel(self, own_id: int) -> None:
        self.unanswered.cancelled(own_id)
        self._outgoing.cancels.append(own_id)
        self._flush_soon()

    def grant(self, grant: wire.StreamAck) -> None:
        """Let a stub send more responses of a stream."""
        self._outgoing.grants.append(grant)
        self._flush_soon()

    def send(self, message: Any) -> None:
        """Send at once; dropped while there is no broker."""
        if self.connection is not None:
            self.connection.put([wire.encode(message)])
            self.connection.flush()

    def _flush_soon(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        connection = self.connection
        if connection is None:
            return
        self._is_flush_due = False
        self.unanswered.sent(self._outgoing.requests, self._outgoing.bodies)
        # before the requests: a stub that executes one may need the room
        if self.releases is not None and self.releases.blocks:
            for release in self.releases.take():
                connection.put([wire.encode(release)])
        for frames in self._outgoing.messages():
            connection.put(frames)
        connection.flush()

    def connect(
        self, connection: BrokerConnection, first: Iterable[Any], last: Iterable[Any]
    ) -> None:
        """Introduce this process to a broker.

        Sends the first messages, the requests that an earlier broker has left unanswered, and the
        last messages.
        """
        self.connection = connection
        for message in first:
            connection.put([wire.encode(message)])
        for message, bodies in self.unanswered.again():
            connection.put([wire.encode(message), *bodies])
        for message in last:
            connection.put([wire.encode(message)])
        connection.flush()

    def disconnect(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None
