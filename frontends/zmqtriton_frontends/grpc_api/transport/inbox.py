"""One client's bytes on their way to HTTP/2: read in turns, and kept between them.

While bytes are kept, the socket is not read, so the client waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from zmqtriton_frontends.http2 import frames
from zmqtriton_frontends.http2.connection import Http2Connection
from zmqtriton_frontends.inference.connected_client import ConnectedClient
from zmqtriton_frontends.process.ledger import Share
from zmqtriton_frontends.process.turns import BYTE_S, READ_S, ROUND_S

_log = logging.getLogger(__name__)


class Inbox:
    def __init__(
        self,
        client: ConnectedClient,
        share: Share,
        http2: Http2Connection,
        transport: Any,
        have_read: Callable[[], None],
    ) -> None:
        """Set up; `have_read` is called after each turn that reads kept bytes."""
        self._client = client
        self._share = share
        self._http2 = http2
        self._transport = transport
        self._have_read = have_read
        self.kept = bytearray()
        self._is_waiting = False

    def take(self, data: memoryview) -> None:
        """Read arrived bytes in the client's turn, and keep the others for later turns."""
        turns, cost = self._client.turns, self._client.cost
        begun = turns.clock()
        until = turns.end_of_turn(cost, begun) if turns.is_crowded else begun + ROUND_S
        left = len(data)
        if until and not self.kept:
            left = self._http2.receive(data, until)
            turns.spend(cost, begun, READ_S + len(data) * BYTE_S)
            if self._http2.fault is not None:
                self._log_fault()
        if left:
            self.kept += data[-left:]
            self._share.hold(len(self.kept))
            self._transport.pause_reading()
            self._wait()

    def resume(self) -> None:
        """Continue after the client has read the bytes that were sent."""
        if self.kept:
            self._wait()
        else:
            self._transport.resume_reading()

    def close(self) -> None:
        self.kept = bytearray()
        self._share.release()

    def _wait(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._client.turns.wait(self._client.cost, self._go_on)

    def _go_on(self, until: float) -> bool:
        """Read kept bytes; return whether there are more."""
        self._is_waiting = False
        if not self.kept or self._http2.is_paused:
            return False
        with memoryview(self.kept) as kept:
            left = self._http2.receive(kept, until)
        if self._http2.fault is not None:
            self._log_fault()
        # not del: views of it may be left, in the frames of an error that is kept
        self.kept = self.kept[len(self.kept) - left :]
        self._share.hold(left)
        self._have_read()
        self._is_waiting = left > 0
        if not left and not self._http2.is_paused and not self._transport.is_closing():
            self._transport.resume_reading()
        return self._is_waiting

    def _log_fault(self) -> None:
        fault, self._http2.fault = self._http2.fault, None
        if fault is not None and fault.code == frames.ENHANCE_YOUR_CALM:
            _log.warning("closed a gRPC connection of %s: %s", self._client.place, fault.text)
