"""The features of the server, in the order in which their hooks are called.

Imported where a core is built, and nowhere else. A new feature adds its class.
"""

from __future__ import annotations

from zmqtriton.supervisor.features.canaries.registry import CanaryRegistry
from zmqtriton.supervisor.features.draining.draining import Draining
from zmqtriton.supervisor.features.feature import Feature
from zmqtriton.supervisor.features.object_stores.object_stores import ObjectStores
from zmqtriton.supervisor.features.on_demand.on_demand import OnDemandLoader
from zmqtriton.supervisor.features.operations.operations import Operations
from zmqtriton.supervisor.features.quotas.quota_report import QuotaReport
from zmqtriton.supervisor.features.reloading.reload_calls import ReloadCalls
from zmqtriton.supervisor.features.reloading.reloader import Reloader
from zmqtriton.supervisor.features.repositories.repositories import RepositoryRegistry
from zmqtriton.supervisor.features.scaling.autoscaler import Autoscaler
from zmqtriton.supervisor.features.settings.log_settings import LogSettings
from zmqtriton.supervisor.features.settings.trace_settings import TraceSettings

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
