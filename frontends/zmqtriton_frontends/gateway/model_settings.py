"""The settings of a server that concern its models, applied to a frontend's catalogue."""

from __future__ import annotations

from zmqtriton_floor import lazy_names
from zmqtriton_floor.settings.frontends import FrontendSettings
from zmqtriton_frontends.inference.catalogue import Catalogue
from zmqtriton_frontends.inference.load_on_demand import Call, OnDemandLoader


def apply_settings(catalogue: Catalogue, settings: FrontendSettings, call: Call) -> None:
    """Apply the settings of a Bootstrap; `call` asks the supervisor to load a model."""
    catalogue.strict_readiness = settings.models.strict_readiness
    catalogue.can_name_models = not (settings.access.tokens or settings.access.restrictions)
    on_demand = settings.models.on_demand
    catalogue.demand = OnDemandLoader(call, on_demand.timeout_s) if on_demand.is_on else None
    if settings.models.steps:
        catalogue.steps_of = lazy_names.load_reference(settings.models.steps)
