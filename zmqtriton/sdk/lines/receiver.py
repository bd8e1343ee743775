"""A process that receives records of requests from frontends, and writes all of them."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from zmqtriton_frontends.serving.process import Service


class Writer(Protocol):
    """A thread that writes."""

    @property
    def has_ended(self) -> bool:
        """True once nothing more will be written."""

    def end(self) -> None:
        """End once all received records are written."""


class Receiver(Service):
    def __init__(
        self,
        name: str,
        listener: socket.socket,
        writer: Writer,
        connection: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        """Set up with a bound socket; `name` is the service's name in the log.

        `connection` makes the protocol of a frontend's connection; `connections` has the open ones.
        """
        self._name = name
        self._listener = listener
        self._path = str(listener.getsockname())
        self._writer = writer
        self._connection = connection
        #: The connections of frontends.
        self.connections: set[asyncio.BaseProtocol] = set()
        self._server: asyncio.Server

    async def open(self) -> Sequence[tuple[str, str]]:
        self._server = await asyncio.get_running_loop().create_unix_server(
            self._connection, sock=self._listener, backlog=socket.SOMAXCONN
        )
        return [(self._name, self._path)]

    async def end(self, within_s: float) -> None:
        with suppress(OSError):  # the directory is gone
            os.unlink(self._path)

    def end_idle(self) -> bool:
        # frontends end after their clients, and send until then
        if not self.connections:
            self._writer.end()
        return self._writer.has_ended

    async def close(self) -> None:
        self._server.close()
