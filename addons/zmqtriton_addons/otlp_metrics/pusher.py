"""The life of a process that pushes: at intervals, after pauses in an outage, and at the end."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress

from zmqtriton.otlp_destination import Destination
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.serving import Service

POST_WITHIN_S = 10.0
#: The last push waits for what is to come, but leaves this time for its post.
LAST_POST_S = 2.0


class Pusher(Service):
    def __init__(
        self, title: str, gateway: Gateway, listener: socket.socket, interval_s: float
    ) -> None:
        """Set up with a bound socket, at which the figures of this process are read."""
        self.gateway = gateway
        self._title = title
        self._listener = listener
        self._path = str(listener.getsockname())
        self.interval_s = interval_s
        self._is_ending = asyncio.Event()
        self._server: asyncio.Server
        self._pushing: asyncio.Task[None]
        self._last: asyncio.Task[None]

    @abstractmethod
    async def push(self, within_s: float) -> float:
        """Push what there is; return the pause before the next try, 0 if none is needed."""

    @abstractmethod
    def figures(self) -> list[str]:
        """Return the lines of this process for the page of metrics."""

    async def await_last(self, until_s: float) -> None:
        """Wait until the last push has all that is to come, but not after this time."""

    def with_instance(self, destination: Destination) -> Destination:
        """Return the destination, whose resource says which server this is."""
        resource = {"service.instance.id": _instance_id(self.gateway), **destination.resource}
        return destination._replace(resource=resource)

    async def open(self) -> Sequence[tuple[str, str]]:
        self._server = await asyncio.start_unix_server(self._answer, sock=self._listener)
        self._pushing = asyncio.ensure_future(self._push_on())
        return [(self._title, self._path)]

    async def end(self, within_s: float) -> None:
        self._last = asyncio.ensure_future(self._push_last(within_s))

    def end_idle(self) -> bool:
        return self._last.done()

    async def close(self) -> None:
        for task in (self._pushing, self._last):
            task.cancel()
        self._server.close()
        with suppress(OSError):  # the directory is gone
            os.unlink(self._path)

    async def _push_on(self) -> None:
        while not self._is_ending.is_set():
            begun_s = time.monotonic()
            pause_s = await self.push(POST_WITHIN_S)
            left_s = begun_s + self.interval_s - time.monotonic()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._is_ending.wait(), pause_s or max(0.0, left_s))

    async def _push_last(self, within_s: float) -> None:
        end_s = time.monotonic() + within_s
        self._is_ending.set()
        await asyncio.wait((self._pushing,), timeout=within_s - LAST_POST_S)
        if not self._pushing.done():
            return  # the collector does not answer
        await self.await_last(end_s - LAST_POST_S)
        await self.push(max(0.1, min(LAST_POST_S, end_s - time.monotonic() - 0.1)))

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write("".join(f"{line}\n" for line in self.figures()).encode())
        writer.close()


def _instance_id(gateway: Gateway) -> str:
    """Return the address at which Prometheus would read the page, or clients ask the server."""
    settings = gateway.settings
    services = settings.metrics_service, settings.http, settings.grpc
    port = next((service.port for service in services if service.is_served), 0)
    return f"{socket.gethostname()}:{port}"
