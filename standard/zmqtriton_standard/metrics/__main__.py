"""`python -m zmqtriton_standard.metrics --lifeline FD --socket FD`, for the supervisor.

The page has no socket if the process serves only ports of add-ons.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from typing import Any, Protocol

from zmqtriton.sdk.frontend import Gateway, PageServer
from zmqtriton.sdk.process import Hook, Service, address_of, load_reference, prctl, run
from zmqtriton.sdk.wire import wire
from zmqtriton_standard.metrics import exposition
from zmqtriton_standard.metrics.gpus import Gpus
from zmqtriton_standard.metrics.machine import Machine, MachineLoad
from zmqtriton_standard.metrics.scraper import Scraper

_log = logging.getLogger(__name__)

#: The limit for a running scrape at the end, however long requests are given.
_STOP_WITHIN_S = 2.0
_PAGE = "socket"


class Samples(Protocol):
    """An object that keeps samples of the metrics, and answers questions about them."""

    run: Callable[[], Coroutine[Any, Any, None]]
    answer: Callable[[wire.Call], wire.CallResult]


#: Makes the object that records metrics over time and answers calls about this history.
SAMPLES = Hook[Callable[[Gateway, MachineLoad], Samples]]("metrics.samples")
#: Makes a function that chooses the format of the metrics page for a request.
PAGE_FORM = Hook[Callable[[Gateway], Any]]("metrics.page_form")


class MetricsService(Service):
    """The page of metrics, ports of add-ons, and the history, if there is one."""

    def __init__(self, gateway: Gateway, bound: Mapping[str, socket.socket]) -> None:
        self._gateway = gateway
        self._bound = bound
        self._load = MachineLoad(supervisor=os.getppid())
        #: The parts that have to be ended, the last one first.
        self._parts = AsyncExitStack()

    async def open(self) -> list[tuple[str, str]]:
        listening = []
        for listener in self._bound.values():
            listener.setblocking(False)
        for port in self._gateway.settings.ports:
            if port.name in self._bound:
                served = load_reference(port.serve)(self._gateway)
                await served.start(self._bound[port.name])
                self._parts.push_async_callback(served.stop)
                listening.append((port.title, address_of(self._bound[port.name])))
        if _PAGE in self._bound:
            listener = self._bound[_PAGE]
            page = self._make_page(listener)
            await page.start(listener)
            self._parts.push_async_callback(page.stop, _STOP_WITHIN_S)
            listening.append(("Metrics Service", address_of(listener)))
        if make_sampler := SAMPLES.first_of(self._gateway.settings.offers):
            sampler = make_sampler(self._gateway, self._load)
            self._gateway.on_call = sampler.answer
            self._begin(sampler.run())
        return listening

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._parts.callback(asyncio.get_running_loop().create_task(work).cancel)

    def _make_page(self, listener: socket.socket) -> PageServer:
        settings = self._gateway.settings
        machine = Machine() if settings.metrics_service.allow_cpu_metrics else None
        interval_s = max(0.01, settings.metrics_service.interval_ms / 1000)
        if machine is not None:
            self._begin(machine.watch(interval_s))
            _log.info("Collecting CPU metrics")
        gpus = Gpus() if settings.metrics_service.allow_gpu_metrics else None
        if gpus is not None:
            gpus.watch(interval_s)
            self._parts.callback(gpus.close)
        scraper = Scraper(self._gateway, interval_s, machine, gpus, self._load)
        make_form = PAGE_FORM.first_of(settings.offers)
        return PageServer.of(
            settings,
            listener,
            scraper.scrape,
            path="/metrics",
            content_type=exposition.CONTENT_TYPE,
            negotiate=make_form(self._gateway) if make_form else None,
        )

    async def close(self) -> None:
        await self._parts.aclose()


def main() -> int:
    return run("zmqtriton-metrics", [_PAGE], MetricsService, is_small=True)


if __name__ == "__main__":
    prctl.run_program(main)
