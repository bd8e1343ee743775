"""The process that pushes metrics: `python -m zmqtriton_extras.otlp_metrics.process`.

A page that was not accepted is dropped, because the next one has newer values of the same sums. So
only the page being sent is in memory, and a slow collector gets fewer pages.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

from zmqtriton.sdk.frontend import Gateway, Threads
from zmqtriton.sdk.process import Destination, prctl, run_local
from zmqtriton.sdk.wire import ZmqTritonError
from zmqtriton_extras.otlp_metrics import conversion
from zmqtriton_extras.otlp_metrics.conversion import MetricsConverter
from zmqtriton_extras.otlp_metrics.options import (
    INTERVAL,
    METRICS,
    SERVICE,
    complete_url,
    interval_s,
)
from zmqtriton_extras.otlp_metrics.pusher import LAST_POST_S, Exporter, Pusher
from zmqtriton_standard.metrics.gpus import Gpus
from zmqtriton_standard.metrics.machine import Machine, MachineLoad
from zmqtriton_standard.metrics.model_metrics import head
from zmqtriton_standard.metrics.scraper import Scraper
from zmqtriton_standard.tracing.posting import PostError

_log = logging.getLogger(__name__)

_GATHER_WITHIN_S = 10.0
_LOOK_EVERY_S = 0.05
ACCEPTED, PARTLY, FAILED = RESULTS = "accepted", "partly", "failed"


class MetricsExporter(Exporter):
    """Posts pages to a collector, one at a time, and judges its answers. Blocks."""

    def __init__(
        self, destination: Destination, jitter: Callable[[], float] = random.random
    ) -> None:
        super().__init__("metrics", "points of metrics", destination, jitter)
        self._converter = MetricsConverter(destination.resource)
        #: Pages by result, and points that the collector has not taken of pages that it took.
        self.pages: Counter[str] = Counter()
        self.refused_points = 0

    def export(self, page: str, now_ns: int, within_s: float) -> float:
        """Post a page with this time; return the pause before the next, 0 if none is needed."""
        refused, reason = 0, ""
        try:
            for data, points in self._converter.convert(conversion.parse(page), now_ns):
                count, why = self.post(data, within_s)
                refused += min(max(0, count), points)
                reason = why or reason
        except PostError as failure:
            self.pages[FAILED] += 1
            return self.fail(str(failure), failure.is_retryable, failure.retry_after_s)
        except Exception as error:  # noqa: BLE001 - an edge: the next page may be right
            _log.exception("a page of metrics could not be exported")
            self.pages[FAILED] += 1
            return self.fail(str(error), False, 0.0)
        self._converter.accepted()
        self.pages[PARTLY if refused else ACCEPTED] += 1
        self.refused_points += refused
        self.succeed(refused, reason)
        return 0.0


class MetricsPusher(Pusher):
    """Pushes at intervals and once at the end; gathers the page itself."""

    def __init__(self, gateway: Gateway, listener: socket.socket) -> None:
        """Set up with a bound socket, at which the figures of this process are read."""
        settings = gateway.settings
        super().__init__(
            "OtlpMetrics", gateway, listener, interval_s(settings.option(INTERVAL), os.environ)
        )
        destination = Destination.read(
            [("url", complete_url(settings.option(SERVICE)))], os.environ, *METRICS
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
        await self._load.look(time.monotonic())
        if self._machine is not None:
            self._machine.look()
        try:
            gathering = self._scraper.scrape()
            page = await asyncio.wait_for(gathering, min(within_s, _GATHER_WITHIN_S))
        except (ZmqTritonError, asyncio.TimeoutError) as error:
            _log.debug("no page of metrics: %r", error)
            return 0.0
        now_ns = time.time_ns()
        return await Threads("exporter", 1).run(self._exporter.export, page, now_ns, within_s)

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


def main() -> int:
    return run_local("zmqtriton-otlp", MetricsPusher)


if __name__ == "__main__":
    prctl.run_program(main)
