"""Sends reports about traced requests to the tracing process.

Every process reports what it has seen itself and never waits: reports beyond a limit are lost, and
counted. A span's name is W3C's traceparent, followed by a blank and the tracestate if a client has
sent one.
"""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING, Any

from zmqtriton_floor import endpoints, wire
from zmqtriton_floor.settings.codec import decode
from zmqtriton_floor.settings.tracing import TracerSettings

if TYPE_CHECKING:
    from zmqtriton_floor.process.zmq_sockets import Pusher

#: The length of what precedes a span's id in a traceparent, and of the whole.
_PREFIX = len("00-") + 32 + len("-")
_LENGTH = _PREFIX + 16 + len("-01")
_ID = (1 << 64) - 1
#: Spreads neighbouring numbers over all of them.
_ODD = 0x9E3779B97F4A7C15
#: Spans that one process keeps until they are taken.
LIMIT = 10_000
#: Time that the last spans of a process get to be taken by the tracing process.
_LINGER_MS = 1000


def open_receiver(bootstrap: wire.Bootstrap) -> tuple[TracerSettings, Any]:
    """Return the settings of the tracing process, and the socket where spans arrive."""
    # only now: most processes send
    import zmq

    from zmqtriton_floor.process.zmq_sockets import open_puller

    address = endpoints.spans_address(bootstrap.directory)
    settings = decode(TracerSettings, bootstrap.settings)
    return settings, open_puller(zmq.Context.instance(), address, LIMIT)


def span_of(trace: str) -> str:
    """Return the id of the span that a traceparent names."""
    return trace[_PREFIX : _PREFIX + 16]


def parts(trace: str) -> tuple[str, str]:
    """Return the traceparent and the tracestate, which may be empty."""
    return trace[:_LENGTH], trace[_LENGTH + 1 :]


def named(traceparent: str, tracestate: str = "") -> str:
    """Return the name of a span that a client has begun; later W3C versions may append fields."""
    return f"00{traceparent[2:_LENGTH]}{' ' * bool(tracestate)}{tracestate}"


def new() -> str:
    """Return a name for the first span of a new trace."""
    return f"00-{os.urandom(16).hex()}-{os.urandom(8).hex()}-01"


def among(trace: str) -> str:
    """Return a name for another span of the same trace."""
    return f"{trace[:_PREFIX]}{os.urandom(8).hex()}-01{trace[_LENGTH:]}"


def below(trace: str, peer: int, own_id: int) -> str:
    """Return the name of a request's own span, below the given one.

    The name is the same in every process that handles the request, also when the request is
    repeated to another broker. No other request has the same span above it, and a random collision
    with a span of other servers in the same trace is excluded for all practical purposes.
    """
    mixed = (int(span_of(trace), 16) + (peer << 48 ^ own_id)) * _ODD & _ID
    return f"{trace[:_PREFIX]}{mixed ^ mixed >> 32 or 1:016x}-01{trace[_LENGTH:]}"


class SpanSender:
    """Opens its socket with the first span. Thread-safe."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._pusher: Pusher | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        #: Spans that were not taken, and that were not reported as lost yet.
        self.lost = 0

    def send(self, trace: str, details: dict[str, Any]) -> None:
        with self._lock:
            if self._is_closed:
                return
            if self._pusher is None:
                # only now: most processes send no span
                from zmqtriton_floor.process.zmq_sockets import Pusher

                self._pusher = Pusher(endpoints.spans_address(self._directory), LIMIT)
            if self.lost:
                details["lost"] = self.lost
            span = wire.encode(wire.Span(trace, json.dumps(details)))
            self.lost = 0 if self._pusher.offer([span]) else self.lost + 1

    def close(self) -> None:
        """Close the socket; sent spans arrive if they are taken within a moment."""
        with self._lock:
            self._is_closed = True
            if self._pusher is not None:
                self._pusher.close(_LINGER_MS)
                self._pusher = None
