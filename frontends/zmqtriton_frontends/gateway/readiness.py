"""The readiness of the server and its models, for the probes of clients.

The catalogue has the supervisor's reports on processes. A model with an is_ready of its own is
asked by the supervisor, which limits how long that takes; no other probe leaves this process.
"""

from __future__ import annotations

from collections.abc import Collection

from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.inference.server_readiness import why_not_ready

VERB = "is_ready"


class Readiness:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def of_server(self) -> bool:
        """Return the server's: strict, unless it was started with --strict-readiness=false."""
        return not await self.why_not_of_server()

    async def why_not_of_server(self) -> str:
        """Return why the server is not ready, or ""."""
        catalogue = self._gateway.catalogue
        if self._gateway.is_stopping:
            return "the server stops"
        problem = why_not_ready(catalogue)
        generations = () if problem else catalogue.generations_with_is_ready()
        if await self.of_generations(generations):
            return problem
        return "a model says by its is_ready that it is not ready"

    async def of_model(self, name: str, version: str = "") -> bool:
        """Return the model's. Raises as Catalogue.find() does for an unknown model."""
        catalogue = self._gateway.catalogue
        if not catalogue.is_model_ready(name, version) or self._gateway.is_stopping:
            return False
        model = catalogue.find(name, version)
        return await self.of_generations([model.generation] if model.is_asked else [])

    async def of_generations(self, generations: Collection[int]) -> bool:
        """Return the answers of these models; True without any."""
        if not generations:
            return True
        return bool(await self._gateway.call(VERB, {"generations": sorted(generations)}))
