"""The endpoints of SageMaker and Vertex AI, which HTTP's processes serve on further ports."""

from __future__ import annotations

from zmqtriton.sdk.frontend import EndpointParts, Gateway
from zmqtriton_extras.clouds.target_models import Application
from zmqtriton_extras.clouds.vertex_ai import Scrape
from zmqtriton_standard.metrics.machine import Machine
from zmqtriton_standard.metrics.scraper import Scraper


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


def sagemaker(parts: EndpointParts) -> Application:
    # only now, as below: most servers have one of them
    from zmqtriton_extras.clouds.sagemaker import SageMaker
    from zmqtriton_extras.clouds.target_models import TargetModels

    models = TargetModels(parts.gateway)
    of_models = parts.build(models.routes())
    return SageMaker(parts.gateway, parts.application, models, of_models, parts.access)


def vertex_ai(parts: EndpointParts) -> Application:
    from zmqtriton_extras.clouds.vertex_ai import VertexAi

    scrape = scrape_of(parts.gateway)
    return VertexAi(parts.gateway, parts.application, scrape, parts.access)
