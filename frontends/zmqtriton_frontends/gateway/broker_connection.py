"""A frontend's connection to one broker, on its asyncio loop.

The gateway opens one for each epoch. Sends at once what the kernel takes, and the rest when it has
room; never blocks. Knows frames only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from zmqtriton_floor import wire
from zmqtriton_floor.zmtp import Dealer


class BrokerConnection:
    """Calls `on_message` with the frames of each message, and `on_end` after the last."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        address: str,
        on_message: Callable[[list[bytes]], None],
        on_end: Callable[[], None],
    ) -> None:
        """Connect. Raises OSError if there is no descriptor for it."""
        self._loop = loop
        self._on_message = on_message
        self._on_end = on_end
        self._dealer = Dealer(address)
        self._is_writing = False
        #: Queues one message; flush() sends what is queued.
        self.put = self._dealer.put
        loop.add_reader(self._dealer.fileno(), self.read)

    def flush(self) -> None:
        self._dealer.flush()
        if self._dealer.is_blocked and not self._is_writing:
            self._is_writing = True
            self._loop.add_writer(self._dealer.fileno(), self._write_on)

    def _write_on(self) -> None:
        self._dealer.flush()
        if not self._dealer.is_blocked:
            self._is_writing = False
            self._loop.remove_writer(self._dealer.fileno())

    def read(self) -> None:
        """Read all that is here."""
        dealer = self._dealer
        messages = dealer.messages
        while dealer.has_input():
            while messages:
                self._on_message(messages.popleft())
        if not dealer.is_open:
            self._unwatch()
            self._on_end()

    def _unwatch(self) -> None:
        self._loop.remove_reader(self._dealer.fileno())
        self._loop.remove_writer(self._dealer.fileno())

    def close(self) -> None:
        self._unwatch()
        self._dealer.close()


class Outgoing:
    def __init__(self) -> None:
        self.requests: list[wire.Request] = []
        #: Of the requests, one for each.
        self.bodies: list[bytes] = []
        self.cancels: list[int] = []
        self.grants: list[wire.StreamAck] = []

    def messages(self) -> list[list[bytes]]:
        """Take the messages, each as its frames."""
        taken = []
        requests, self.requests = self.requests, []
        bodies, self.bodies = self.bodies, []
        cancels, self.cancels = self.cancels, []
        grants, self.grants = self.grants, []
        for i in range(0, len(requests), wire.MAX_ROWS):
            end = i + wire.MAX_ROWS
            taken.append([wire.encode_rows(wire.Infer, requests[i:end]), *bodies[i:end]])
        rarer: tuple[tuple[Any, list[Any]], ...] = (wire.Cancel, cancels), (wire.StreamAcks, grants)
        for kind, rows in rarer:
            for i in range(0, len(rows), wire.MAX_ROWS):
                taken.append([wire.encode(kind(rows[i : i + wire.MAX_ROWS]))])
        return taken
