"""The endpoints that a process of HTTP serves, each on a socket of its own."""

from __future__ import annotations

from collections.abc import Collection

from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.http_api import app
from zmqtriton_frontends.http_api.asgi.access import Access
from zmqtriton_frontends.http_api.clouds.sagemaker import SageMaker
from zmqtriton_frontends.http_api.clouds.target_models import TargetModels
from zmqtriton_frontends.http_api.clouds.vertex_ai import Scrape, VertexAi
from zmqtriton_frontends.metrics_api.machine import Machine
from zmqtriton_frontends.metrics_api.scraper import Scraper
from zmqtriton_frontends.process.ledger import Application

MAIN, SAGEMAKER, VERTEX_AI = "socket", "sagemaker-socket", "vertex-ai-socket"
#: The services by the options that name their sockets.
SOCKETS = {
    MAIN: "HTTPService",
    SAGEMAKER: "Sagemaker HTTPService",
    VERTEX_AI: "Vertex AI HTTPService",
}


def all_endpoints(
    names: Collection[str], gateway: Gateway, application: Application, access: Access
) -> dict[str, Application]:
    """Return the application of each endpoint; they pass requests on to that of the main."""
    found = {MAIN: application}
    if SAGEMAKER in names:
        models = TargetModels(gateway)
        of_models = app.build(gateway, models.routes(), access)
        found[SAGEMAKER] = SageMaker(gateway, application, models, of_models, access)
    if VERTEX_AI in names:
        found[VERTEX_AI] = VertexAi(gateway, application, _scrape(gateway), access)
    return found


def _scrape(gateway: Gateway) -> Scrape | None:
    if not gateway.settings.metrics_service.is_served:
        return None
    machine = Machine() if gateway.settings.metrics_service.allow_cpu_metrics else None
    scraper = Scraper(gateway, machine=machine)

    async def scrape() -> str:
        if machine is not None:
            machine.look()
        return await scraper.scrape()

    return scrape
