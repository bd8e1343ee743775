"""The process of captures, as frontends and its operator see it."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from pathlib import Path

from zmqtriton.store_places import is_remote
from zmqtriton_addons.capture.frames import LENGTHS, decode
from zmqtriton_addons.capture.options import EVENTS
from zmqtriton_addons.capture.process.assembly import Assembly, Budget
from zmqtriton_addons.capture.process.segments import Segments
from zmqtriton_addons.capture.process.writer import Target, Writer
from zmqtriton_addons.capture.receiver import Receiver
from zmqtriton_frontends.gateway import Gateway

_log = logging.getLogger(__name__)

#: The limit of bytes of records in progress and of those to be written.
HELD_BYTES = 128 << 20
_LOG_EVERY_S = 60.0


class CaptureService(Receiver):
    def __init__(self, gateway: Gateway, listener: socket.socket) -> None:
        """Set up with a bound socket."""
        options = dict(gateway.settings.server.service_options)
        self._place = json.loads(options["capture_to"])
        target = _target(self._place, json.loads(options["capture_byte_size"]))
        self.budget = Budget(HELD_BYTES)
        self.writer = Writer(target, self.budget)
        super().__init__("Capture", listener, self.writer, lambda: _Connection(self))
        self.assemblies: set[Assembly] = set()
        self._dropped = self._logged = 0
        self._logged_s = float("-inf")

    def check(self) -> None:
        """Log from time to time how many requests were dropped."""
        for assembly in self.assemblies:
            self.count_dropped(assembly)
        now_s = time.monotonic()
        if self._dropped > self._logged and now_s - self._logged_s >= _LOG_EVERY_S:
            self._logged, self._logged_s = self._dropped, now_s
            text = "%d requests were not captured: %s does not keep up"
            _log.warning(text, self._dropped, self._place)

    def count_dropped(self, assembly: Assembly) -> None:
        """Count the requests that a frontend or its assembly has dropped."""
        self._dropped += sum(assembly.dropped.values())
        assembly.dropped.clear()


def _target(place: str, limit: int) -> Target:
    """Return the target of the records."""
    # each needs libraries that the others do not
    if is_remote(place):
        from zmqtriton_addons.capture.process.buckets import Bucket

        return Bucket(place)
    if place.startswith(EVENTS):
        from zmqtriton_addons.capture.process.events import Posted

        return Posted(place)
    return Segments(Path(place).absolute(), limit)


class _Connection(asyncio.Protocol):
    """The connection of one frontend."""

    def __init__(self, service: CaptureService) -> None:
        self._service = service
        self._assembly = Assembly(service.budget)
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
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
        begin = 0
        while len(received) >= begin + LENGTHS.size:
            lengths = LENGTHS.unpack_from(received, begin)
            end = begin + LENGTHS.size + sum(lengths)
            if len(received) < end:
                break
            at = begin + LENGTHS.size
            header, tensors = (
                bytes(received[at : at + lengths[0]]),
                bytes(received[at + lengths[0] : end]),
            )
            capture = self._assembly.take(decode(header, tensors))
            if capture is not None:
                self._service.writer.write(capture)
            begin = end
        del received[:begin]
