"""Connections of a real loop and real sockets, but with a clock that the test turns."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from gunicorn.config import Config

from zmqtriton_frontends.http_api.server.connections import Connection, Connections
from zmqtriton_frontends.http_api.server.fast_path import FastPath
from zmqtriton_frontends.http_api.server.tls import Tls


class ConnectionHarness:
    """One server with an application that answers with as many bytes as it is told."""

    def __init__(self, shortcut: FastPath | None = None) -> None:
        self.shortcut = shortcut
        self.now = 1000.0
        self.answer_bytes = 2
        self.bodies: list[bytes] = []

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
    async def serve(self, tls: Tls | None = None) -> AsyncIterator[ConnectionHarness]:
        loop = asyncio.get_running_loop()
        cfg = Config()
        cfg.set("asgi_disconnect_grace_period", 0)
        log = SimpleNamespace(access_log_enabled=False)
        for level in ("debug", "info", "warning", "error", "exception"):
            setattr(log, level, getattr(logging.getLogger(__name__), level))
        owner = SimpleNamespace(
            keeps_spelling=False, shortcut=self.shortcut,
            cfg=cfg, log=log, asgi=self.application, loop=loop, nr_conns=0, nr=0,
            max_requests=2**31, alive=True, state={},
        )  # fmt: skip
        self.connections = Connections(loop)
        self.connections.now = lambda: self.now
        make: Any = lambda: Connection(owner, self.connections)  # noqa: E731
        if tls is not None:
            make = tls.secured(make)
        server = await loop.create_server(make, "127.0.0.1", 0)
        self.address = server.sockets[0].getsockname()
        try:
            yield self
        finally:
            server.close()
            self.connections.close()
            await asyncio.sleep(0)

    async def connect(self, data: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*self.address)
        writer.write(data)
        await self.run_loop()
        return reader, writer

    async def run_loop(self) -> None:
        """Lets the loop carry what was written to the other side."""
        for _ in range(20):
            await asyncio.sleep(0.001)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.connections.check()
