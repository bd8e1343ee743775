"""What is known of traced requests, on its way to the process that keeps traces.

Everybody who has seen something of one sends it himself, never waiting: what is too much is lost,
which is counted. Knows nothing of what is told.
"""

from __future__ import annotations

import json
import threading
from typing import Any

import zmq

from zmqtriton_floor import endpoints, wire

#: What precedes the id of the span in a traceparent.
_PREFIX = len("00-") + 32 + len("-")
_ID = (1 << 64) - 1
#: Spans that one process keeps for the one that takes them.
LIMIT = 10_000


def span_of(trace: str) -> str:
    """The id of the span that a traceparent names."""
    return trace[_PREFIX : _PREFIX + 16]


def below(trace: str, peer: int, own_id: int) -> str:
    """The traceparent of a request's own span; the same for whoever hears of the request, also
    when it is asked again of another broker."""
    return f"{trace[:_PREFIX]}{(peer << 48 ^ own_id) & _ID or 1:016x}-01"


class Sender:
    """Opens its socket with the first span. Safe for use by several threads."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._socket: Any = None
        self._lock = threading.Lock()
        #: Spans that were not taken, and of which nobody has been told yet.
        self.lost = 0

    def send(self, trace: str, told: dict[str, Any]) -> None:
        with self._lock:
            if self._socket is None:
                address = endpoints.spans_address(self._directory)
                self._socket = endpoints.open_pusher(zmq.Context.instance(), address, LIMIT)
            if self.lost:
                told["lost"] = self.lost
            try:
                endpoints.send(self._socket, [wire.encode(wire.Span(trace, json.dumps(told)))])
                self.lost = 0
            except zmq.Again:
                self.lost += 1
