"""The server, as control calls see it: what the core has for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from zmqtriton.supervisor.control import regions, repositories
from zmqtriton.supervisor.control.immediate_calls import KnowingServer
from zmqtriton.supervisor.control.staged_files import StagedFiles
from zmqtriton.supervisor.features.canaries.registry import CanaryRegistry
from zmqtriton.supervisor.features.draining import draining
from zmqtriton.supervisor.features.on_demand import on_demand
from zmqtriton.supervisor.features.reloading import reload_calls
from zmqtriton.supervisor.features.scaling import scaling_calls
from zmqtriton.supervisor.models.loads.loading import LoadCallback
from zmqtriton.supervisor.models.loads.nested_loads import NestedLoads
from zmqtriton.supervisor.server_processes import metrics_process, readiness


class StartupState(Protocol):
    """The start of the server, as control calls need it."""

    #: Nothing can be served, for want of a repository.
    is_repository_missing: bool


class ControlledServer(KnowingServer, reload_calls.ReloadableServer, Protocol):
    """The server, as control calls need it."""

    @property
    def is_stopping(self) -> bool:
        """True once nothing new may begin."""

    @property
    def startup(self) -> StartupState:
        """The start of the server."""

    def is_stub(self, caller: int) -> bool:
        """True if the caller is a model."""

    def is_guest(self, caller: int) -> bool:
        """True if the caller is a process of the user's that takes part."""

    def is_bound_by(self, caller: int, model: str) -> bool:
        """True if this process of the user's runs the model."""

    @property
    def nested_loads(self) -> NestedLoads:
        """The loads for which another load waits."""

    @property
    def on_demand_loader(self) -> on_demand.OnDemandLoader:
        """The models that are loaded on demand."""

    @property
    def staged_files(self) -> StagedFiles:
        """The directories that loads bring along."""

    def unload(self, model: str, dependents: bool, done: LoadCallback) -> None:
        """Unload a model; `done` is called when it can no longer be asked.

        Nor can the models that depend on it.
        """

    def request_index(self, done: Callable[[list[dict[str, Any]]], None]) -> None:
        """Pass the entries of the repository index to `done`."""

    @property
    def readiness(self) -> readiness.ReadinessChecks:
        """The models' own answers about their readiness."""

    @property
    def repositories(self) -> repositories.RepositoryRegistry:
        """The directories of models."""

    @property
    def steering(self) -> scaling_calls.Steering:
        """The steering of models while they serve."""

    @property
    def canaries(self) -> CanaryRegistry:
        """The versions that are tried beside others."""

    @property
    def draining(self) -> draining.Draining:
        """The drains of the server, of models and of instances."""

    @property
    def metrics_process(self) -> metrics_process.MetricsProcess:
        """The process that keeps the history."""

    @property
    def regions(self) -> regions.RegionRegistry:
        """Clients' shared memory."""
