"""The process of the access log, as frontends see it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Sequence
from contextlib import suppress

from zmqtriton_addons.access_log.options import SERVICE
from zmqtriton_addons.access_log.process.log_file import LogFile
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.serving import Service


class AccessLogService(Service):
    def __init__(self, gateway: Gateway, listener: socket.socket) -> None:
        """Set up with a bound socket."""
        self._listener = listener
        self._path = str(listener.getsockname())
        path = json.loads(dict(gateway.settings.server.service_options)[SERVICE])
        self.file = LogFile(os.path.abspath(path))
        self.connections: set[_Connection] = set()
        self._server: asyncio.Server

    async def open(self) -> Sequence[tuple[str, str]]:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(
            lambda: _Connection(self), sock=self._listener, backlog=socket.SOMAXCONN
        )
        return [("AccessLog", self._path)]

    async def end(self, within_s: float) -> None:
        with suppress(OSError):  # the directory is gone
            os.unlink(self._path)

    def end_idle(self) -> bool:
        # frontends end after their clients, and send until then
        if not self.connections:
            self.file.end()
        return self.file.has_ended

    async def close(self) -> None:
        self._server.close()


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
