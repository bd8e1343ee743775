"""The readiness of the server and its models, for the probes of clients.

The catalogue has the supervisor's reports on processes. A model with an is_ready of its own is
asked by the supervisor, which limits how long that takes; no other probe leaves this process.
"""

from __future__ import annotations

from collections.abc import Collection

from zmqtriton_frontends.gateway.gateway import Gateway
from zmqtriton_frontends.inference.catalogue import Catalogue
from zmqtriton_frontends.inference.model_version import ModelVersion

#: Models that the text names, and characters of the reason of each; the others are counted.
_MAX_NAMES, _MAX_REASON = 3, 200


def why_not_ready(catalogue: Catalogue) -> str:
    """Return why the server is not ready, "" if it is.

    Models are named where every client may see them.
    """
    of_all = (
        (catalogue.is_ready(), ""),
        (catalogue.is_draining, "the server drains"),
        (not catalogue.has_broker, "the server replaces its broker"),
        (catalogue.is_repository_missing, "the server waits for its model repository"),
        (catalogue.is_moving, "models move to this server from the one before"),
    )
    for is_so, text in of_all:
        if is_so:
            return text
    counted = [
        (name, version)
        for name, versions in catalogue.versions().items()
        for version in versions or (None,)
        if version is None or not version.may_be_missing
    ]
    unready = [each for each in counted if each[1] is None or not each[1].is_ready]
    text = f"{len(unready)} of {len(counted)} model versions that should serve are not ready"
    if not catalogue.can_name_models:
        return text
    names = [_describe(*each) for each in unready]
    more = f", and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"{text}: {', '.join(names[:_MAX_NAMES])}{more}"


def _describe(name: str, version: ModelVersion | None) -> str:
    """Return a version with the begin of the reason, or with its state."""
    if version is None:
        return f"{name} (it has no version)"
    state = "no instance can execute" if version.is_loaded else version.state
    why = (version.reason_text.partition("\n")[0] or state)[:_MAX_REASON]
    return f"{name} version {version.version} ({why})"


class Readiness:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def of_server(self) -> bool:
        """Return the readiness of the server; strict, without --strict-readiness=false."""
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
        return bool(await self._gateway.call("is_ready", {"generations": sorted(generations)}))
