"""The server's decisions: what should run, what does run, and what to do about it.

The service tells the core what has happened and performs the actions that it takes from the plan.
The core does no I/O, knows no clock and never blocks, so every race can be replayed in a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from zmqtriton.supervisor.actions import Action, LoadOverride, RepositoryListing
from zmqtriton.supervisor.control.control import ControlCallHandler
from zmqtriton.supervisor.control.log_settings import LogSettings
from zmqtriton.supervisor.control.operations import OperatorCommands
from zmqtriton.supervisor.control.regions import RegionRegistry
from zmqtriton.supervisor.control.repositories import RepositoryRegistry
from zmqtriton.supervisor.control.server_status import ServerStatus
from zmqtriton.supervisor.control.staged_files import StagedFiles
from zmqtriton.supervisor.control.trace_settings import TraceSettings
from zmqtriton.supervisor.events import EventRouter
from zmqtriton.supervisor.features.canaries.registry import CanaryRegistry
from zmqtriton.supervisor.features.draining.draining import Draining
from zmqtriton.supervisor.features.object_stores.object_stores import ObjectStores
from zmqtriton.supervisor.features.on_demand.on_demand import OnDemandLoader
from zmqtriton.supervisor.features.reloading.reloader import Reloader
from zmqtriton.supervisor.features.scaling.autoscaler import Autoscaler
from zmqtriton.supervisor.features.scaling.scaling_calls import Steering
from zmqtriton.supervisor.models.bindings import end_bindings, guests_of, is_guest
from zmqtriton.supervisor.models.call_graph import LoadOrder, RetirementQueue
from zmqtriton.supervisor.models.context import LoadSlots, ModelContext
from zmqtriton.supervisor.models.ensembles import EnsembleMembers
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.models.index import repository_index
from zmqtriton.supervisor.models.loads.loading import LoadCallback
from zmqtriton.supervisor.models.loads.nested_loads import NestedLoads
from zmqtriton.supervisor.models.loads.preparations import EnvironmentPreparations
from zmqtriton.supervisor.models.memory_measurements import MemoryMeasurements
from zmqtriton.supervisor.models.model import Model
from zmqtriton.supervisor.models.model_report import is_ready, serving_config
from zmqtriton.supervisor.models.startup import Startup
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.policy import Policy
from zmqtriton.supervisor.server_processes.acknowledgements import Acknowledgements
from zmqtriton.supervisor.server_processes.broker_counts import BrokerCounts
from zmqtriton.supervisor.server_processes.introductions import Introductions, ServerInfo
from zmqtriton.supervisor.server_processes.peers import Peers
from zmqtriton.supervisor.server_processes.readiness import ReadinessChecks
from zmqtriton.supervisor.server_processes.service_manager import ServiceManager
from zmqtriton.supervisor.server_processes.shutdown import ShutdownSequence
from zmqtriton.supervisor.states import GenerationState
from zmqtriton_floor import wire
from zmqtriton_floor.errors import ZmqTritonError


class Core:
    """Call a method for each event, then take the plan's actions."""

    def __init__(
        self, policy: Policy, server: ServerInfo, *, pid: int = 0, now_s: float = 0.0
    ) -> None:
        self.plan = plan = Plan(now_s)
        self._policy = policy
        self.models: dict[str, Model] = {}
        self.generations: dict[int, Generation] = {}
        #: The last lines of the log: (model or "", after which line, how many).
        self.log_lines: Callable[[str, int, int], dict[str, Any]] = _no_lines
        #: The last lines of the processes of a model.
        self.process_lines: Callable[[str], list[dict[str, Any]]] = lambda model: []
        self.options = server.options
        self._acknowledgements = Acknowledgements(plan)
        self._introductions = Introductions(plan, server, self._acknowledgements)
        self._peers = Peers(
            plan,
            self._introductions,
            self._acknowledgements,
            policy.frontend_roles,
            has_fork_server=policy.has_fork_server,
        )
        self.metrics_process = self._peers.metrics_process
        self.regions = RegionRegistry(
            plan,
            self._acknowledgements,
            self._peers.serving_serials,
            is_allowed=policy.allow_client_shm,
        )
        self._counts = BrokerCounts(plan, self._introductions)
        self.measurements = MemoryMeasurements(plan)
        gauges = (self._counts, self.measurements)
        self.on_demand_loader = OnDemandLoader(plan, policy, self, *gauges)
        self.autoscaler = Autoscaler(plan, policy, self, *gauges)
        self._leaving = RetirementQueue(self.generations)
        within_s, told = policy.exit_timeout_s, self._introductions
        self._stopping = ShutdownSequence(plan, self._peers, told, self._counts, within_s)
        self._stopping.get_generations = self.generations.values
        self._stopping.retire_after_callers = self._leaving.retire_after_callers
        self.startup = Startup(plan, policy, self, self._peers.publish)
        self.reloader = Reloader(plan, self)
        self._preparations = EnvironmentPreparations(plan, self._introductions)
        self.object_stores = ObjectStores(plan, self._introductions, policy)
        self.canaries = CanaryRegistry(
            plan,
            self.models,
            self._introductions,
            self._acknowledgements,
            self._peers,
            self._counts,
        )
        self._context = self._surroundings(policy)
        self._connect_operators(server)
        self._connect_processes(server, pid)
        self.nested_loads = NestedLoads(self.generations, self._context.load_slots)

    def _surroundings(self, policy: Policy) -> ModelContext:
        plan = self.plan
        return ModelContext(
            plan=plan,
            introductions=self._introductions,
            acknowledgements=self._acknowledgements,
            load_slots=LoadSlots(plan, policy.load_slots, policy.load_slot_timeout_s),
            serving_frontends=self._peers.serving_serials,
            publish=self._peers.publish,
            generations=self.generations,
            ensemble_members=EnsembleMembers(self.models, self.get_or_create_model),
            load_order=LoadOrder(self.models, self.get_or_create_model),
            retirements=self._leaving,
            preparations=self._preparations,
            object_stores=self.object_stores,
            canaries=self.canaries,
            load_retries=policy.load_retries,
            load_ended=self.autoscaler.watch,
            has_on_demand_loading=policy.load_on_demand,
        )

    def _connect_operators(self, server: ServerInfo) -> None:
        """Connect the parts that answer operators and clients."""
        plan = self.plan
        self.log_settings = LogSettings(plan, self._introductions, server.settings_json)
        self.trace_settings = TraceSettings(
            server.settings_json, self._introductions.change_trace_settings
        )
        self.readiness = ReadinessChecks(plan, self.generations)
        self.staged_files = StagedFiles(plan, server.directory)
        is_explicit = self._policy.control_mode == "explicit"
        self.repositories = RepositoryRegistry(
            plan, self._policy.repositories, self.models, is_explicit=is_explicit
        )
        self.operator_commands = OperatorCommands(
            plan, self.generations, lambda m, d: self.load(m, None, d)
        )
        self.steering = Steering(self.models, self.autoscaler)
        self._control = ControlCallHandler(plan, self, is_explicit=is_explicit)

    def _connect_processes(self, server: ServerInfo, pid: int) -> None:
        """Connect the parts that hear of processes, and those that describe them."""
        self.draining = Draining(self.plan, self, self._counts, self._peers.publish)
        self.status = ServerStatus(
            server,
            self.models,
            self.generations,
            peers=self._peers,
            helpers=(self._preparations, self.object_stores),
            stopping=self._stopping,
            counts=self._counts,
            loader=self.on_demand_loader,
            repositories=self.repositories,
            canaries=self.canaries,
            pid=pid,
        )
        self.status.drains = self.draining.describe
        self._notification = ServiceManager(
            self.plan, self._policy.watchdog_interval_s, self._probe_broker, self.status.summary
        )
        self.events = EventRouter(
            self.plan,
            self.generations,
            peers=self._peers,
            introductions=self._introductions,
            regions=self.regions,
            helpers=(self._preparations, self.object_stores),
            readiness=self.readiness,
            stopping=self._stopping,
            status=self.status,
            on_call=self._control.handle,
        )
        self._peers.catalogue_messages = self._all_news
        self._peers.region_messages = self.regions.registration_messages
        self._peers.on_broker_lost = self._stopping.exit_now
        self._peers.on_guest_left = lambda guest, reason: end_bindings(
            self.models.values(), guest, reason
        )
        self._peers.on_statistics = self._counts.handle_statistics

    def take_actions(self) -> list[Action]:
        """Take the actions to perform now, in this order."""
        self._forget_the_ended()
        used = [g.blueprint.directory for g in self.generations.values()]
        self.staged_files.remove_unused(used)
        self.object_stores.sweep(used, self.models)
        self.draining.advance()
        if self._stopping.has_begun:
            self._stopping.advance()
        self.canaries.advance()
        self._leaving.retire_unneeded()
        self.on_demand_loader.advance()
        is_stopping = self.is_stopping or self.draining.is_exiting
        self._notification.update(is_ready=self.is_open, is_stopping=is_stopping)
        return self.plan.take_actions()

    # ---------------------------------------------------------- what happens

    def start(self, started_s: float) -> None:
        """Start the server; the first call. `started_s` is the wall clock."""
        self.status.started(started_s)
        self._peers.start()
        self._notification.begin()
        if self._policy.early_liveness:
            self._peers.opening.begin()
        self.startup.begin()
        if self._policy.reload:
            self.reloader.begin()

    def tick(self, now_s: float) -> None:
        """Advance the time; to be called before any other event of this moment."""
        self.plan.advance_to(now_s)

    def stop_requested(self) -> None:
        """Take a request to stop.

        An orderly end the first time, an immediate one the second time.
        """
        if self._stopping.has_begun or self.draining.is_exiting:
            self.plan.log("W", "The second signal ends the server at once, with all under way.")
            self._stopping.exit_now()
        elif self._policy.exit_drain_s:
            self.draining.drain_to_exit(self._policy.exit_drain_s)
        else:
            self.stop()

    def _forget_the_ended(self) -> None:
        for number in [n for n, g in self.generations.items() if g.state is GenerationState.ENDED]:
            del self.generations[number]
        if self.startup.is_over:
            for name in [
                n for n, m in self.models.items() if m.history.is_directory_gone and m.has_ended
            ]:
                del self.models[name]
                self._peers.publish(wire.ForgetModel(name))
                self.trace_settings.forget_model(name)
                self.canaries.forget_model(name)

    # ------------------------------------------------------ models, for others

    def is_stub(self, caller: int) -> bool:
        return self.events.find_stub(caller)[1] is not None

    def is_guest(self, caller: int) -> bool:
        return is_guest(self._peers.find_peer(caller))

    def is_bound_by(self, caller: int, model: str) -> bool:
        return model in self.models and caller in guests_of(self.models[model])

    @property
    def is_open(self) -> bool:
        return self.startup.is_over and self._peers.opening.is_complete

    @property
    def is_stopping(self) -> bool:
        return self._stopping.has_begun

    def get_or_create_model(self, name: str) -> Model:
        """Return the model; make it known if it was not."""
        return self.models.setdefault(name, Model(name, self._context))

    def is_model_ready(self, model: str, version: int) -> bool:
        return model in self.models and is_ready(self.models[model], version)

    def load(self, model: str, override: LoadOverride | None, done: LoadCallback) -> None:
        self.get_or_create_model(model).load(done, override=override, again=True)

    def unload(self, model: str, dependents: bool, done: LoadCallback) -> None:
        names = self._context.ensemble_members.unload_order(model) if dependents else [model]
        left = [self.models[name] for name in names if name in self.models]

        def unload_next(_: ZmqTritonError | None) -> None:
            if left:
                left.pop(0).unload(unload_next)
            else:
                done(None)

        unload_next(None)

    def serving_config(self, model: str, version: int) -> dict[str, Any]:
        return serving_config(self.models[model], version) if model in self.models else {}

    def list_repository(self, then: Callable[[RepositoryListing], None]) -> None:
        self.object_stores.list_models(then)

    def request_index(self, done: Callable[[list[dict[str, Any]]], None]) -> None:
        self.list_repository(
            lambda found: done(
                repository_index(found, self.models, self.on_demand_loader.never_loaded_entry)
            )
        )

    def _probe_broker(self, then: Callable[[], None]) -> None:
        if self._introductions.broker_serial:
            self._acknowledgements.probe(self._introductions.broker_serial, then)

    def _all_news(self) -> Iterable[Any]:
        if self.draining.is_server_drained:
            yield wire.ServerDraining(1)
        if self.startup.is_repository_missing:
            yield wire.RepositoryState(1)
        yield from self.canaries.splits()
        for model in self.models.values():
            yield from model.version_infos()

    def accept_clients(self) -> None:
        """Let clients connect."""
        if not self.is_stopping:
            self._peers.opening.begin()

    def stop(self, status: int = 0) -> None:
        """End the server in order."""
        if self._stopping.has_begun:
            return
        self._stopping.begin(status)
        self.on_demand_loader.stop()
        self.canaries.is_stopping = True
        for model in self.models.values():
            model.loads.cancel_all("Server exiting")


def _no_lines(model: str, after: int, limit: int) -> dict[str, Any]:
    return {"lines": [], "last": 0, "lost": 0}
