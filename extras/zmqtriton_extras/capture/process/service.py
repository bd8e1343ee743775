"""The process of captures, as frontends and its operator see it."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import Counter
from pathlib import Path

from zmqtriton.sdk.frontend import Gateway
from zmqtriton.sdk.lines.receiver import Receiver
from zmqtriton.sdk.models import is_remote
from zmqtriton_extras.capture import CaptureOptions
from zmqtriton_extras.capture.frames import LENGTHS, decode
from zmqtriton_extras.capture.options import EVENTS
from zmqtriton_extras.capture.process.assembly import Assembly, Budget, Capture
from zmqtriton_extras.capture.process.segments import Segments
from zmqtriton_extras.capture.process.writer import Target, Writer
from zmqtriton_standard.metrics.model_metrics import render

_log = logging.getLogger(__name__)

#: The limit of bytes of records in progress and of those to be written.
HELD_BYTES = 128 << 20
_LOG_EVERY_S = 60.0
_COUNTER = 0


class CaptureService(Receiver):
    def __init__(self, gateway: Gateway, listener: socket.socket) -> None:
        """Set up with a bound socket."""
        options = gateway.settings.options_of("capture", CaptureOptions)
        self._place = options.capture_to
        target = _target(self._place, options.capture_byte_size)
        self.budget = Budget(HELD_BYTES)
        self.writer = Writer(target, self.budget)
        super().__init__("Capture", listener, self.writer, lambda: _Connection(self))
        self.assemblies: set[Assembly] = set()
        #: Dropped requests by model.
        self._dropped: Counter[str] = Counter()
        self._logged = 0
        self._logged_s = float("-inf")

    def check(self) -> None:
        """Log from time to time how many requests were dropped."""
        for assembly in self.assemblies:
            self.count_dropped(assembly)
        count, now_s = self._dropped.total(), time.monotonic()
        if count > self._logged and now_s - self._logged_s >= _LOG_EVERY_S:
            self._logged, self._logged_s = count, now_s
            text = "%d requests were not captured: %s does not keep up"
            _log.warning(text, count, self._place)

    def count_dropped(self, assembly: Assembly) -> None:
        """Count the requests that a frontend or its assembly has dropped."""
        self._dropped += assembly.dropped
        assembly.dropped.clear()

    def figures(self) -> str:
        """Return the text for the page of metrics."""
        for assembly in self.assemblies:
            self.count_dropped(assembly)
        counts = {
            "written": self.writer.written,
            "failed": self.writer.failed,
            "dropped": self._dropped,
        }
        series = [
            {"labels": {"model": model, "result": result}, "value": count}
            for result, by_model in counts.items()
            for model, count in dict(by_model).items()
        ]
        text = "Captured requests by result; dropped where the target does not keep up"
        family = {"name": "zmqtriton_captures_total", "description": text, "kind": _COUNTER}
        return render([{**family, "series": series}])


def _target(place: str, limit: int) -> Target:
    """Return the target of the records."""
    # each needs libraries that the others do not
    if is_remote(place):
        from zmqtriton_extras.capture.process.buckets import Bucket

        return Bucket(place)
    if place.startswith(EVENTS):
        from zmqtriton_extras.capture.process.events import Posted

        return Posted(place)
    return Segments(Path(place).absolute(), limit)


class _Connection(asyncio.Protocol):
    """The connection of one frontend."""

    def __init__(self, service: CaptureService) -> None:
        self._service = service
        self._assembly = Assembly(service.budget)
        self._received = bytearray()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._service.connections.add(self)
        self._service.assemblies.add(self._assembly)

    def connection_lost(self, error: Exception | None) -> None:
        self._assembly.close()
        self._service.count_dropped(self._assembly)
        self._service.assemblies.discard(self._assembly)
        self._service.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        begin, captures = 0, list[Capture]()
        while len(received) >= begin + LENGTHS.size:
            lengths = LENGTHS.unpack_from(received, begin)
            at = begin + LENGTHS.size
            end = at + sum(lengths)
            if end == at:  # the question of the page of metrics
                self._transport.write(self._service.figures().encode())
                self._transport.close()
            elif len(received) < end:
                break
            else:
                tensors = bytes(received[at + lengths[0] : end])
                frames = decode(bytes(received[at : at + lengths[0]]), tensors)
                captures += filter(None, map(self._assembly.take, frames))
            begin = end
        del received[:begin]
        if captures:
            self._service.writer.write(captures)
