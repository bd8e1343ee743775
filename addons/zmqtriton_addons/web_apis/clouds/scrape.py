"""The page of metrics, for an endpoint that has no port of metrics."""

from __future__ import annotations

from zmqtriton_addons.web_apis.clouds.vertex_ai import Scrape
from zmqtriton_frontends.gateway import Gateway
from zmqtriton_frontends.metrics_api.machine import Machine
from zmqtriton_frontends.metrics_api.scraper import Scraper


def scrape_of(gateway: Gateway) -> Scrape | None:
    """Return the maker of the page; None if the server has no metrics."""
    if not gateway.settings.metrics_service.is_served:
        return None
    machine = Machine() if gateway.settings.metrics_service.allow_cpu_metrics else None
    scraper = Scraper(gateway, machine=machine)

    async def scrape() -> str:
        if machine is not None:
            machine.look()
        return await scraper.scrape()

    return scrape
