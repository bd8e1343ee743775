"""The process of captures, as frontends and its operator see it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from zmqtriton_addons.capture.frames import LENGTHS, decode
from zmqtriton_addons.capture.process.assembly import Assembly, Budget
from zmqtriton_addons.capture.process.segments import Segments
from zmqtriton_addons.capture.process.writer import Writer
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.serving import Service

_log = logging.getLogger(__name__)

#: The limit of bytes of records in progress and of those to be written.
HELD_BYTES = 128 << 20
_READ_BYTES = 1 << 20
_LOG_EVERY_S = 60.0


class CaptureService(Service):
    def __init__(self, gateway: Gateway, listener: socket.socket) -> None:
        """Set up with a bound socket."""
        self._listener = listener
        self._path = str(listener.getsockname())
        options = dict(gateway.settings.server.service_options)
        directory = Path(json.loads(options["capture_to"])).absolute()
        segments = Segments(directory, json.loads(options["capture_byte_size"]))
        self._budget = Budget(HELD_BYTES)
        self._writer = Writer(segments, self._budget)
        self._assemblies: set[Assembly] = set()
        self._dropped = self._logged = 0
        self._logged_s = float("-inf")
        self._server: asyncio.Server

    async def open(self) -> Sequence[tuple[str, str]]:
        self._server = await asyncio.start_unix_server(
            self._serve, sock=self._listener, limit=_READ_BYTES, backlog=socket.SOMAXCONN
        )
        return [("Capture", self._path)]

    def check(self) -> None:
        """Log from time to time how many requests were dropped."""
        for assembly in self._assemblies:
            self._count(assembly)
        now_s = time.monotonic()
        if self._dropped > self._logged and now_s - self._logged_s >= _LOG_EVERY_S:
            self._logged, self._logged_s = self._dropped, now_s
            _log.warning("%d requests were not captured: the disk does not keep up", self._dropped)

    async def end(self, within_s: float) -> None:
        with suppress(OSError):  # the directory is gone
            os.unlink(self._path)

    def end_idle(self) -> bool:
        # frontends end after their clients, and send until then
        if not self._assemblies:
            self._writer.end()
        return self._writer.has_ended

    async def close(self) -> None:
        self._server.close()

    def _count(self, assembly: Assembly) -> None:
        self._dropped += sum(assembly.dropped.values())
        assembly.dropped.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assembly = Assembly(self._budget)
        self._assemblies.add(assembly)
        try:
            while True:
                lengths = LENGTHS.unpack(await reader.readexactly(LENGTHS.size))
                header, tensors = [await reader.readexactly(length) for length in lengths]
                capture = assembly.take(decode(header, tensors))
                if capture is not None:
                    self._writer.write(capture)
        except (OSError, EOFError):
            return  # it has ended
        finally:
            assembly.close()
            self._count(assembly)
            self._assemblies.discard(assembly)
            writer.close()
