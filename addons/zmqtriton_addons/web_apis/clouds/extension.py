"""SageMaker and Vertex AI as an extension of the HTTP frontend: endpoints on ports of their own."""

from __future__ import annotations

from zmqtriton_frontends.http_api import EndpointParts, HttpExtension
from zmqtriton_frontends.process import Application


def _sagemaker(parts: EndpointParts) -> Application:
    # only now, as below: a server without these endpoints need not load them
    from zmqtriton_addons.web_apis.clouds.sagemaker import SageMaker
    from zmqtriton_addons.web_apis.clouds.target_models import TargetModels

    models = TargetModels(parts.gateway)
    of_models = parts.build(models.routes())
    return SageMaker(parts.gateway, parts.application, models, of_models, parts.access)


def _vertex_ai(parts: EndpointParts) -> Application:
    from zmqtriton_addons.web_apis.clouds.scrape import scrape_of
    from zmqtriton_addons.web_apis.clouds.vertex_ai import VertexAi

    scrape = scrape_of(parts.gateway)
    return VertexAi(parts.gateway, parts.application, scrape, parts.access)


EXTENSION = HttpExtension(
    endpoints={"sagemaker-socket": _sagemaker, "vertex-ai-socket": _vertex_ai}
)
