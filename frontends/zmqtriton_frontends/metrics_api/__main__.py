"""`python -m zmqtriton_frontends.metrics_api --lifeline FD --socket FD`, for the supervisor.

Either socket may be missing: that of the page of metrics, and that of agent checks.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from zmqtriton_floor import prctl
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_frontends.access.bearer_tokens import bearer_tokens_of
from zmqtriton_frontends.gateway import startup
from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.metrics_api import exposition
from zmqtriton_frontends.metrics_api.agent_check import AgentCheck
from zmqtriton_frontends.metrics_api.gpus import Gpus
from zmqtriton_frontends.metrics_api.history.machine_load import MachineLoad
from zmqtriton_frontends.metrics_api.history.sampler import Sampler
from zmqtriton_frontends.metrics_api.machine import Machine
from zmqtriton_frontends.metrics_api.scraper import Scraper
from zmqtriton_frontends.metrics_api.server import Page
from zmqtriton_frontends.process import request_log
from zmqtriton_frontends.process.hosts import AllowedHosts

_log = logging.getLogger(__name__)

#: The limit for a running scrape at the end, however long requests are given.
_STOP_WITHIN_S = 2.0
_AGENT_CHECK = "agent-check-socket"


def main() -> int:
    parser = argparse.ArgumentParser(prog="zmqtriton_frontends.metrics_api")
    parser.add_argument("--lifeline", type=int, required=True)
    parser.add_argument("--socket", type=int)
    parser.add_argument(f"--{_AGENT_CHECK}", type=int)
    arguments = parser.parse_args()
    prctl.set_name("zmqtriton-metrics")
    prctl.hide_memory()
    prctl.die_with(os.getppid())
    descriptors = arguments.socket, vars(arguments)[_AGENT_CHECK.replace("-", "_")]
    asyncio.run(serve(Lifeline.inherited(arguments.lifeline), *map(_listener, descriptors)))
    return 0


def _listener(descriptor: int | None) -> socket.socket | None:
    if descriptor is None:
        return None
    listener = socket.socket(fileno=descriptor)
    listener.setblocking(False)
    return listener


async def serve(
    lifeline: Lifeline, of_page: socket.socket | None, of_agent_check: socket.socket | None
) -> None:
    """Serve until the supervisor or SIGTERM says stop."""
    gateway = Gateway(lifeline)
    load = MachineLoad(supervisor=os.getppid())
    sampler = Sampler(gateway, load)
    gateway.on_call = sampler.answer
    stopped = asyncio.Event()
    gateway.on_stop = lambda within_ms: stopped.set()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    ending = asyncio.ensure_future(stopped.wait())
    if not await startup.may_open(gateway, ending):
        return
    request_log.configure()
    async with AsyncExitStack() as stack:
        if of_agent_check is not None:
            await stack.enter_async_context(_agent_check(gateway, of_agent_check))
        if of_page is not None:
            await stack.enter_async_context(_page(gateway, of_page, load))
        sampling = asyncio.ensure_future(sampler.run())
        await ending
        sampling.cancel()
    gateway.close()


@asynccontextmanager
async def _page(
    gateway: Gateway, listener: socket.socket, load: MachineLoad
) -> AsyncIterator[None]:
    settings = gateway.settings
    machine = Machine() if settings.metrics_service.allow_cpu_metrics else None
    interval_s = max(0.01, settings.metrics_service.interval_ms / 1000)
    watching = None
    if machine is not None:
        watching = asyncio.ensure_future(machine.watch(interval_s))
        _log.info("Collecting CPU metrics")

    gpus = Gpus() if settings.metrics_service.allow_gpu_metrics else None
    if gpus is not None:
        gpus.watch(interval_s)
    scraper = Scraper(gateway, interval_s, machine, gpus, load)
    hosts = AllowedHosts(listener.getsockname()[0], settings.http.allowed_hosts)
    tokens = bearer_tokens_of(settings.access.tokens)
    page = Page("/metrics", exposition.CONTENT_TYPE, scraper.scrape, hosts, tokens)
    await page.start(listener)
    gateway.listening("Metrics Service", startup.address(*listener.getsockname()[:2]))
    try:
        yield
    finally:
        await page.stop(_STOP_WITHIN_S)
        if watching is not None:
            watching.cancel()
        if gpus is not None:
            gpus.close()


@asynccontextmanager
async def _agent_check(gateway: Gateway, listener: socket.socket) -> AsyncIterator[None]:
    check = AgentCheck(gateway)
    await check.start(listener)
    gateway.listening("Agent Check", startup.address(*listener.getsockname()[:2]))
    try:
        yield
    finally:
        await check.stop()


if __name__ == "__main__":
    prctl.run_program(main)
