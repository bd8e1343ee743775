"""The life of a process that pushes to a collector, also through the collector's outages."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress

from zmqtriton.sdk.frontend import Gateway
from zmqtriton.sdk.process import Destination, Service
from zmqtriton_standard.tracing import otlp
from zmqtriton_standard.tracing.posting import poster_to

POST_WITHIN_S = 10.0
#: Seconds that the last push keeps for its post while it waits for final figures.
LAST_POST_S = 2.0
#: The time at the end for a push under way: a collector that takes longer gets no last one.
_UNDER_WAY_S = 1.0
_log = logging.getLogger(__name__)

#: The pause before the next message in an outage: the first one, and the longest that we choose.
PAUSE_S, MAX_PAUSE_S = 1.0, 30.0
#: The longest one that a collector may ask for.
_MAX_RETRY_AFTER_S = 300.0
#: Pauses are longer by up to this share, so that servers do not come back at once.
_JITTER = 0.2


class Exporter:
    """Posts messages; the log reports the begin and the end of an outage. Blocks."""

    def __init__(
        self,
        what: str,
        parts: str,
        destination: Destination,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Set up; `what` and `parts` name the content and its units in the log."""
        self._what = what
        self._parts = parts
        self._public_url = destination.public_url
        self._post = poster_to(destination)
        self._jitter = jitter
        #: The pause before the next message in an outage; 0 without one.
        self._pause_s = 0.0
        self._warned_of_refusal = False

    def post(self, data: bytes, within_s: float) -> tuple[int, str]:
        """Post a message; return the number of refused parts and the reason. Raises PostError."""
        return otlp.parse_rejected(self._post(data, within_s))

    def fail(self, reason: str, is_retryable: bool, retry_after_s: float) -> float:
        """Record a failure; return the pause before the same or the next message, 0 for none."""
        if not self._pause_s:
            _log.warning("%s cannot be pushed to %s: %s", self._what, self._public_url, reason)
        self._pause_s = min(max(PAUSE_S, self._pause_s * 2), MAX_PAUSE_S)
        if not is_retryable:
            return 0.0  # what will never be taken needs no haste
        pause_s = max(self._pause_s, min(retry_after_s, _MAX_RETRY_AFTER_S))
        return pause_s * (1 + _JITTER * self._jitter())

    def succeed(self, refused: int, reason: str) -> None:
        """Record an accepted message, with the number of refused parts."""
        if self._pause_s:
            _log.info("%s are pushed to %s again", self._what, self._public_url)
        self._pause_s = 0.0
        if refused and not self._warned_of_refusal:
            text = "%s does not take %d %s: %s"
            _log.warning(text, self._public_url, refused, self._parts, reason)
        self._warned_of_refusal = bool(refused)


class Pusher(Service):
    """Pushes at intervals, after pauses in an outage, and at the end."""

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
        """Push new content; return the pause before the next try, 0 if none is needed."""

    @abstractmethod
    def figures(self) -> list[str]:
        """Return the lines of this process for the page of metrics."""

    async def await_last(self, until_s: float) -> None:
        """Wait until the last push has all final figures, but not after this time."""

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
        await asyncio.wait((self._pushing,), timeout=min(_UNDER_WAY_S, within_s))
        if not self._pushing.done():
            _log.warning("%s: the collector does not answer; the last push is lost", self._title)
            return
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
