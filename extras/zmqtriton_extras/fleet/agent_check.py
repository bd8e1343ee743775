"""HAProxy's agent check: each client gets one line with the free share of the server.

`up ready 75%` while it serves, `drain` while it stops, `down # reason` while it is not ready. The
weight is never 0%, which would be a drain.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket

from zmqtriton.sdk.frontend import Gateway, Readiness, utilization
from zmqtriton.sdk.wire import ZmqTritonError, wire

_log = logging.getLogger(__name__)

#: Seconds between two readings of the load, and seconds that its mean is about.
LOOK_EVERY_S = 0.2
SMOOTHED_OVER_S = 3.0
MAX_CONNECTIONS = 256
#: Seconds for the answer, which is a short line that any connection takes at once.
_ANSWER_WITHIN_S = 5.0


class Weight:
    """The free share of the server in percent, smoothed: older readings fade."""

    def __init__(self) -> None:
        self._used = 0.0
        self._at_s: float | None = None

    def look(self, utilization: float, now_s: float) -> None:
        if self._at_s is None:
            self._used = utilization
        else:
            faded = math.exp(-max(0.0, now_s - self._at_s) / SMOOTHED_OVER_S)
            self._used = faded * self._used + (1 - faded) * utilization
        self._at_s = now_s

    @property
    def percent(self) -> int:
        return max(1, round(100 * (1 - self._used)))


class AgentCheck:
    """The server of this line: it answers each check."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._readiness = Readiness(gateway)
        self._weight = Weight()
        self._server: asyncio.Server | None = None
        self._watching: asyncio.Task[None] | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def start(self, listener: socket.socket) -> None:
        self._server = await asyncio.start_server(self._answer, sock=listener)
        self._watching = asyncio.ensure_future(self._watch())

    async def stop(self) -> None:
        assert self._server is not None
        assert self._watching is not None
        self._server.close()
        tasks = [self._watching, *self._open]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async def line(self) -> str:
        """Return the line that answers a check."""
        gateway = self._gateway
        if gateway.is_stopping:
            return "drain # the server stops"
        if gateway.catalogue.is_draining:
            return "drain # the server drains"
        try:
            is_ready = await self._readiness.of_server()
        except ZmqTritonError as error:
            return f"down # {error.text.splitlines()[0]}"
        return f"up ready {self._weight.percent}%" if is_ready else "down # not ready"

    async def _watch(self) -> None:
        now_s = asyncio.get_running_loop().time
        while True:
            try:
                answer = await self._gateway.statistics(kind=wire.LOAD)
                self._weight.look(utilization(answer), now_s())
            except ZmqTritonError as error:
                _log.debug("no load: %s", error.text)
            await asyncio.sleep(LOOK_EVERY_S)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._open) >= MAX_CONNECTIONS:
            writer.close()
            return
        self._open.add(task)
        try:
            writer.write(f"{await asyncio.wait_for(self.line(), _ANSWER_WITHIN_S)}\n".encode())
            await asyncio.wait_for(writer.drain(), _ANSWER_WITHIN_S)
        except (asyncio.TimeoutError, ConnectionError) as error:
            _log.debug("an agent check was not answered: %r", error)
        finally:
            self._open.discard(task)
            writer.close()
