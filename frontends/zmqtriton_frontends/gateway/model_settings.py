"""The settings of a server that concern its models, applied to a frontend's catalogue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zmqtriton_floor.settings.frontends import FrontendSettings
from zmqtriton_floor.settings.offers import Hook
from zmqtriton_frontends.inference.catalogue import Catalogue
from zmqtriton_frontends.inference.load_on_demand import Call, OnDemandLoader
from zmqtriton_frontends.inference.model_version import ModelVersion

#: Returns further steps for the requests to one version of a model.
STEPS_OF_MODEL = Hook[Callable[[ModelVersion], tuple[Any, ...]]]("requests.steps_of_model")


def apply_settings(catalogue: Catalogue, settings: FrontendSettings, call: Call) -> None:
    """Apply the settings of a Bootstrap; `call` asks the supervisor to load a model."""
    catalogue.strict_readiness = settings.models.strict_readiness
    catalogue.can_name_models = not (settings.access.tokens or settings.access.restrictions)
    on_demand = settings.models.on_demand
    catalogue.demand = OnDemandLoader(call, on_demand.timeout_s) if on_demand.is_on else None
    catalogue.steps_of = STEPS_OF_MODEL.first_of(settings.offers)
