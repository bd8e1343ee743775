"""A frontend's messages to the broker: everything that arises in one turn of the loop together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from zmqtriton_floor import wire
from zmqtriton_frontends.gateway.broker_connection import BrokerConnection
from zmqtriton_frontends.gateway.unanswered import Unanswered
from zmqtriton_frontends.tensors.releases import Releases


class Outbox:
    """Messages for the broker, which wait without one."""

    def __init__(self) -> None:
        #: Sent along with anything else, once there are any.
        self.releases: Releases | None = None
        self._loop: asyncio.AbstractEventLoop
        #: None while there is no broker.
        self.connection: BrokerConnection | None = None
        self._requests: list[wire.Request] = []
        #: Of the requests, one for each.
        self._bodies: list[bytes] = []
        self._cancels: list[int] = []
        self._grants: list[wire.StreamAck] = []
        #: Is told of final replies, so that the next broker is not asked again.
        self.unanswered = Unanswered()
        self._is_flush_due = False

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def request(self, row: wire.Request, body: bytes) -> None:
        self._requests.append(row)
        self._bodies.append(body)
        if not self._is_flush_due:  # as _flush_soon() does, which would be one call more
            self._is_flush_due = True
            self._loop.call_soon(self.flush)

    def cancel(self, own_id: int) -> None:
        self.unanswered.cancelled(own_id)
        self._cancels.append(own_id)
        self._flush_soon()

    def grant(self, grant: wire.StreamAck) -> None:
        """Let a stub send more responses of a stream."""
        self._grants.append(grant)
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
        requests, self._requests = self._requests, []
        bodies, self._bodies = self._bodies, []
        self.unanswered.sent(requests, bodies)
        # before the requests: a stub that executes one may need the room
        if self.releases is not None and self.releases.blocks:
            for release in self.releases.take():
                connection.put([wire.encode(release)])
        for i in range(0, len(requests), wire.MAX_ROWS):
            end = i + wire.MAX_ROWS
            connection.put([wire.encode_rows(wire.Infer, requests[i:end]), *bodies[i:end]])
        if self._cancels or self._grants:
            self._put_rarer(connection)
        connection.flush()

    def _put_rarer(self, connection: BrokerConnection) -> None:
        """Queue a message about requests that were sent before, or just now."""
        cancels, self._cancels = self._cancels, []
        grants, self._grants = self._grants, []
        rarer: tuple[tuple[Any, list[Any]], ...] = (wire.Cancel, cancels), (wire.StreamAcks, grants)
        for kind, rows in rarer:
            for i in range(0, len(rows), wire.MAX_ROWS):
                connection.put([wire.encode(kind(rows[i : i + wire.MAX_ROWS]))])

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
