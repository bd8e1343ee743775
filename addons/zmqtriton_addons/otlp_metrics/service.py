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
from zmqtriton_addons.metrics.gpus import Gpus
from zmqtriton_addons.metrics.machine import Machine
from zmqtriton_addons.metrics.machine_load import MachineLoad
from zmqtriton_addons.metrics.model_metrics import head
from zmqtriton_addons.metrics.scraper import Scraper
from zmqtriton_addons.otlp_metrics.exporter import RESULTS, MetricsExporter
from zmqtriton_addons.otlp_metrics.options import INTERVAL, SERVICE, complete_url, interval_s
from zmqtriton_addons.otlp_metrics.pusher import LAST_POST_S, Pusher
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.process import in_own_thread

_log = logging.getLogger(__name__)

_GATHER_WITHIN_S = 10.0
_LOOK_EVERY_S = 0.05


class MetricsPusher(Pusher):
    def __init__(self, gateway: Gateway, listener: socket.socket) -> None:
        """Set up with a bound socket, at which the figures of this process are read."""
        settings = gateway.settings
        options = {name: json.loads(text) for name, text in settings.server.service_options}
        super().__init__(
            "OtlpMetrics", gateway, listener, interval_s(options[INTERVAL], os.environ)
        )
        destination = otlp_destination.read(
            [("url", complete_url(options[SERVICE]))], os.environ, otlp_destination.METRICS
        )
        self._exporter = MetricsExporter(self.with_instance(destination))
        of_page = settings.metrics_service
        self._machine = Machine() if of_page.allow_cpu_metrics else None
        self._gpus = Gpus() if of_page.allow_gpu_metrics else None
        self._load = MachineLoad(supervisor=os.getppid())
        # shares of time are those of the interval between two pages
        self._scraper = Scraper(gateway, 0.0, self._machine, self._gpus, self._load)

    async def open(self) -> Sequence[tuple[str, str]]:
        if self._gpus is not None:
            of_page = self.gateway.settings.metrics_service
            self._gpus.watch(min(self.interval_s, of_page.interval_ms / 1000))
        return await super().open()

    async def close(self) -> None:
        await super().close()
        if self._gpus is not None:
            self._gpus.close()

    async def await_last(self, until_s: float) -> None:
        with suppress(ZmqTritonError, asyncio.TimeoutError):
            while time.monotonic() < until_s and await self._has_unanswered():
                await asyncio.sleep(_LOOK_EVERY_S)

    async def _has_unanswered(self) -> bool:
        statistics = await asyncio.wait_for(self.gateway.statistics(), LAST_POST_S)
        return bool(statistics["zmqtriton"]["unanswered"])

    async def push(self, within_s: float) -> float:
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

    def figures(self) -> list[str]:
        pages, refused = self._exporter.pages, self._exporter.refused_points
        name, of_points = "zmqtriton_otlp_pages_total", "zmqtriton_otlp_refused_points_total"
        return [
            *head(name, "Pages of metrics that were pushed to a collector, by result", "counter"),
            *(f'{name}{{result="{result}"}} {pages[result]}' for result in RESULTS),
            *head(
                of_points, "Points that the collector did not take of pages that it took", "counter"
            ),
            f"{of_points} {refused}",
        ]
