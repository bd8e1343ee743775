"""What is known of traced requests, on its way to the process that keeps traces.

Everybody who has seen something of one sends it himself, never waiting: what is too much is lost,
which is counted. Knows nothing of what is told. A span's name is W3C's traceparent, with the
tracestate behind a blank where a client has sent one.
"""

from __future__ import annotations

import json
import os
import threading
from typing import Any

import zmq

from zmqtriton_floor import endpoints, wire

#: What precedes the id of the span in a traceparent, and the whole of one.
_PREFIX = len("00-") + 32 + len("-")
_LENGTH = _PREFIX + 16 + len("-01")
_ID = (1 << 64) - 1
#: Spreads neighbouring numbers over all of them.
_ODD = 0x9E3779B97F4A7C15
#: Spans that one process keeps for the one that takes them.
LIMIT = 10_000
#: For what is still under way when a process ends.
_LINGER_MS = 1000


def span_of(trace: str) -> str:
    """The id of the span that a traceparent names."""
    return trace[_PREFIX : _PREFIX + 16]


def parts(trace: str) -> tuple[str, str]:
    """The traceparent and the tracestate, which may be empty."""
    return trace[:_LENGTH], trace[_LENGTH + 1 :]


def named(traceparent: str, tracestate: str = "") -> str:
    """Of a span that others have begun; later versions of W3C's may say more behind it."""
    return f"00{traceparent[2:_LENGTH]}{' ' * bool(tracestate)}{tracestate}"


def new() -> str:
    """Of the first span of a trace."""
    return f"00-{os.urandom(16).hex()}-{os.urandom(8).hex()}-01"


def among(trace: str) -> str:
    """Of another span of the same trace."""
    return f"{trace[:_PREFIX]}{os.urandom(8).hex()}-01{trace[_LENGTH:]}"


def below(trace: str, peer: int, own_id: int) -> str:
    """The name of a request's own span; the same for whoever hears of the request, also when it
    is asked again of another broker. No other is below the same span, and none by chance is in the
    same trace, which other servers may have a part in."""
    mixed = (int(span_of(trace), 16) + (peer << 48 ^ own_id)) * _ODD & _ID
    return f"{trace[:_PREFIX]}{mixed ^ mixed >> 32 or 1:016x}-01{trace[_LENGTH:]}"


class Sender:
    """Opens its socket with the first span. Safe for use by several threads."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        #: Of its own, so that it can be waited for at the end without all others.
        self._context: Any = None
        self._socket: Any = None
        self._is_closed = False
        self._lock = threading.Lock()
        #: Spans that were not taken, and of which nobody has been told yet.
        self.lost = 0

    def send(self, trace: str, told: dict[str, Any]) -> None:
        with self._lock:
            if self._is_closed:
                return
            if self._socket is None:
                address = endpoints.spans_address(self._directory)
                self._context = zmq.Context()
                self._socket = endpoints.open_pusher(self._context, address, LIMIT)
            if self.lost:
                told["lost"] = self.lost
            try:
                endpoints.send(self._socket, [wire.encode(wire.Span(trace, json.dumps(told)))])
                self.lost = 0
            except zmq.Again:
                self.lost += 1

    def close(self) -> None:
        """What was sent arrives, if somebody takes it within a moment."""
        with self._lock:
            self._is_closed = True
            if self._socket is not None:
                self._socket.close(_LINGER_MS)
                self._context.term()
                self._socket = None
