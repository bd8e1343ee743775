"""The process of the access log, as frontends see it."""

from __future__ import annotations

import asyncio
import json
import os
import socket

from zmqtriton_addons.access_log.options import SERVICE
from zmqtriton_addons.access_log.process.log_file import LogFile
from zmqtriton_addons.capture.receiver import Receiver
from zmqtriton_frontends.gateway import Gateway


class AccessLogService(Receiver):
    def __init__(self, gateway: Gateway, listener: socket.socket) -> None:
        """Set up with a bound socket."""
        path = json.loads(dict(gateway.settings.server.service_options)[SERVICE])
        self.file = LogFile(os.path.abspath(path))
        super().__init__("AccessLog", listener, self.file, lambda: _Connection(self))


class _Connection(asyncio.Protocol):
    """The connection of one frontend."""

    def __init__(self, service: AccessLogService) -> None:
        self._service = service
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._service.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._service.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        lines, newline, self._rest = (self._rest + data).rpartition(b"\n")
        if newline:
            self._service.file.write(lines + newline)
