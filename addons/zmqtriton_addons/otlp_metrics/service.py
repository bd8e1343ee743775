"""The process that pushes metrics, at intervals and once at the end; it gathers the page itself."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress

from zmqtriton import otlp_destination
from zmqtriton_addons.otlp_metrics.exporter import RESULTS, MetricsExporter
from zmqtriton_addons.otlp_metrics.options import INTERVAL, SERVICE, complete_url, interval_s
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.metrics_api.gpus import Gpus
from zmqtriton_frontends.metrics_api.machine import Machine
from zmqtriton_frontends.metrics_api.machine_load import MachineLoad
from zmqtriton_frontends.metrics_api.model_metrics import head
from zmqtriton_frontends.metrics_api.scraper import Scraper
from zmqtriton_frontends.process import in_own_thread
from zmqtriton_frontends.serving import Service

_log = logging.getLogger(__name__)

_GATHER_WITHIN_S = 10.0
_POST_WITHIN_S = 10.0
#: The last page waits for the last answers, but leaves this time for its post.
_LAST_POST_S = 2.0
_LOOK_EVERY_S = 0.05


class MetricsPusher(Service):
    def __init__(self, gateway: Gateway, listener: socket.socket) -> None:
        """Set up with a bound socket, at which the figures of this process are read."""
        self._gateway = gateway
        self._listener = listener
        self._path = str(listener.getsockname())
        settings = gateway.settings
        options = {name: json.loads(text) for name, text in settings.server.service_options}
        destination = otlp_destination.read(
            [("url", complete_url(options[SERVICE]))], os.environ, otlp_destination.METRICS
        )
        resource = {"service.instance.id": _instance_id(gateway), **destination.resource}
        self._exporter = MetricsExporter(destination._replace(resource=resource))
        self._interval_s = interval_s(options[INTERVAL], os.environ)
        of_page = settings.metrics_service
        self._machine = Machine() if of_page.allow_cpu_metrics else None
        self._gpus = Gpus() if of_page.allow_gpu_metrics else None
        self._load = MachineLoad(supervisor=os.getppid())
        # shares of time are those of the interval between two pages
        self._scraper = Scraper(gateway, 0.0, self._machine, self._gpus, self._load)
        self._is_ending = asyncio.Event()
        self._server: asyncio.Server
        self._pushing: asyncio.Task[None]
        self._last: asyncio.Task[None]

    async def open(self) -> Sequence[tuple[str, str]]:
        self._server = await asyncio.start_unix_server(self._answer, sock=self._listener)
        if self._gpus is not None:
            self._gpus.watch(
                min(self._interval_s, self._gateway.settings.metrics_service.interval_ms / 1000)
            )
        self._pushing = asyncio.ensure_future(self._push_on())
        return [("OtlpMetrics", self._path)]

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
        if self._gpus is not None:
            self._gpus.close()

    async def _push_on(self) -> None:
        while not self._is_ending.is_set():
            begun_s = time.monotonic()
            pause_s = await self._push(_POST_WITHIN_S)
            left_s = begun_s + self._interval_s - time.monotonic()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._is_ending.wait(), pause_s or max(0.0, left_s))

    async def _push_last(self, within_s: float) -> None:
        end_s = time.monotonic() + within_s
        self._is_ending.set()
        await asyncio.wait((self._pushing,), timeout=within_s - _LAST_POST_S)
        if not self._pushing.done():
            return  # the collector does not answer
        with suppress(ZmqTritonError, asyncio.TimeoutError):
            while time.monotonic() < end_s - _LAST_POST_S and await self._has_unanswered():
                await asyncio.sleep(_LOOK_EVERY_S)
        await self._push(max(0.1, min(_LAST_POST_S, end_s - time.monotonic() - 0.1)))

    async def _has_unanswered(self) -> bool:
        statistics = await asyncio.wait_for(self._gateway.statistics(), _LAST_POST_S)
        return bool(statistics["zmqtriton"]["unanswered"])

    async def _push(self, within_s: float) -> float:
        """Gather a page and push it; return the pause before the next, 0 if none is needed."""
        self._load.look(time.monotonic())
        if self._machine is not None:
            self._machine.look()
        try:
            gathering = self._scraper.scrape()
            page = await asyncio.wait_for(gathering, min(within_s, _GATHER_WITHIN_S))
        except (ZmqTritonError, asyncio.TimeoutError) as error:
            _log.debug("no page of metrics: %r", error)
            return 0.0
        now_ns = time.time_ns()
        return await in_own_thread(
            lambda: self._exporter.export(page, now_ns, within_s), "exporter"
        )

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pages, refused = self._exporter.pages, self._exporter.refused_points
        name = "zmqtriton_otlp_pages_total"
        lines = [
            *head(name, "Pages of metrics that were pushed to a collector, by result", "counter"),
            *(f'{name}{{result="{result}"}} {pages[result]}' for result in RESULTS),
        ]
        name = "zmqtriton_otlp_refused_points_total"
        lines += head(
            name, "Points that the collector did not take of pages that it took", "counter"
        )
        lines.append(f"{name} {refused}")
        writer.write("".join(f"{line}\n" for line in lines).encode())
        writer.close()


def _instance_id(gateway: Gateway) -> str:
    """Return the address at which Prometheus would read the page, or clients ask the server."""
    settings = gateway.settings
    services = settings.metrics_service, settings.http, settings.grpc
    port = next((service.port for service in services if service.is_served), 0)
    return f"{socket.gethostname()}:{port}"
