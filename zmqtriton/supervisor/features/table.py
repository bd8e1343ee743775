"""The features of the server, in the order in which their hooks are called.

Imported where a core is built, and nowhere else. A new feature adds its class.
"""

from __future__ import annotations

from zmqtriton.supervisor.features.canaries.registry import CanaryRegistry
from zmqtriton.supervisor.features.draining.draining import Draining
from zmqtriton.supervisor.features.feature import Feature
from zmqtriton.supervisor.features.object_stores import ObjectStores
from zmqtriton.supervisor.features.on_demand.on_demand import OnDemandLoader
from zmqtriton.supervisor.features.operations import Operations
from zmqtriton.supervisor.features.quotas import QuotaReport
from zmqtriton.supervisor.features.reloading import ReloadCalls, Reloader
from zmqtriton.supervisor.features.repositories import RepositoryRegistry
from zmqtriton.supervisor.features.scaling import Autoscaler
from zmqtriton.supervisor.features.settings import LogSettings, TraceSettings

FEATURES: tuple[type[Feature], ...] = (
    LogSettings,
    TraceSettings,
    RepositoryRegistry,
    ObjectStores,
    Operations,
    Draining,
    CanaryRegistry,
    Autoscaler,
    OnDemandLoader,
    Reloader,
    ReloadCalls,
    QuotaReport,
)
