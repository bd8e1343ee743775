"""Connections of a real loop and real sockets, but with a clock that the test turns."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

from zmqtriton_frontends.http_api.server.inference_heads import InferenceHeads
from zmqtriton_frontends.http_api.server.service import Connections
from zmqtriton_frontends.process.handshakes import Handshakes
from zmqtriton_frontends.process.ledger import Ledger
from zmqtriton_frontends.serving.listener import Listener


class ConnectionHarness:
    """One server with an application that answers with as many bytes as it is told."""

    def __init__(self, inferences: InferenceHeads | None = None) -> None:
        self.inferences = inferences
        self.ledger = Ledger(1 << 30)
        self.now = 1000.0
        self.answer_bytes = 2
        self.bodies: list[bytes] = []
        #: They are closed when the server is.
        self._clients: list[asyncio.StreamWriter] = []

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        await self.application(scope, receive, send)

    async def application(self, scope: Any, receive: Any, send: Any) -> None:
        body, event = b"", {"more_body": True}
        while event.get("more_body"):
            event = await receive()
            if event["type"] == "http.disconnect":
                return
            body += event["body"]
        self.bodies.append(body)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(self.answer_bytes)})

    @contextlib.asynccontextmanager
    async def serve(self, handshakes: Handshakes | None = None) -> AsyncIterator[ConnectionHarness]:
        self.connections = Connections(self._answer, self.inferences, self.ledger, lambda: self.now)
        make: Callable[[], asyncio.BaseProtocol] = self.connections.make
        if handshakes is not None:
            make = handshakes.before(self.connections.make)
        with socket.create_server(("127.0.0.1", 0)) as bound:
            self.address = bound.getsockname()
            listener = Listener(make, bound)
            self.connections.listeners.append(listener)
            await listener.open()
            try:
                yield self
            finally:
                for client in self._clients:
                    client.close()
                listener.close()
                self.connections.close()
                await asyncio.sleep(0)

    async def connect(self, data: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*self.address)
        self._clients.append(writer)
        writer.write(data)
        await self.run_loop()
        return reader, writer

    async def run_loop(self) -> None:
        """Lets the loop carry what was written to the other side."""
        for _ in range(20):
            await asyncio.sleep(0.001)

    @property
    def are_idle(self) -> bool:
        return all(connection.is_idle for connection in self.connections.room)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.connections.check()
