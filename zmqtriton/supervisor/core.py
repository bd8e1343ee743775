"""The server's decisions: the models and processes that should run, and the steps to them.

The service reports events to the core and performs the actions that it takes from the plan. The
core does no I/O, knows no clock and never blocks, so every race can be replayed in a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any

from zmqtriton.supervisor.actions import Action, LoadOverride, RepositoryNames
from zmqtriton.supervisor.control.control import ControlCallHandler
from zmqtriton.supervisor.control.load_calls import LoadCalls, StagedFiles
from zmqtriton.supervisor.control.queries import Queries
from zmqtriton.supervisor.control.regions import RegionRegistry
from zmqtriton.supervisor.control.server_status import ServerStatus
from zmqtriton.supervisor.control.succession import Succession
from zmqtriton.supervisor.events import EventRouter
from zmqtriton.supervisor.features.feature import CoreParts, Feature, Features
from zmqtriton.supervisor.helper_processes import HelperOwner
from zmqtriton.supervisor.models.context import ModelContext
from zmqtriton.supervisor.models.ensembles import EnsembleMembers
from zmqtriton.supervisor.models.environments import EnvironmentPreparations
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.models.model import SERVER_STOPS, ServedModel
from zmqtriton.supervisor.models.order import (
    LoadOrder,
    LoadSlots,
    NestedLoads,
    RetirementQueue,
)
from zmqtriton.supervisor.models.readings import ModelReadings
from zmqtriton.supervisor.models.startup import Startup
from zmqtriton.supervisor.models.stub_tasks import StubTasks
from zmqtriton.supervisor.plan import Guard, Plan
from zmqtriton.supervisor.server_processes.acknowledgements import Acknowledgements
from zmqtriton.supervisor.server_processes.audience import Audience
from zmqtriton.supervisor.server_processes.broker_counts import BrokerCounts
from zmqtriton.supervisor.server_processes.introductions import Introductions
from zmqtriton.supervisor.server_processes.peers import Peers
from zmqtriton.supervisor.server_processes.readiness import ReadinessChecks
from zmqtriton.supervisor.server_processes.service_manager import ServiceManager
from zmqtriton.supervisor.server_processes.shutdown import ShutdownSequence
from zmqtriton.supervisor.settings import Policy, ServerInfo
from zmqtriton.supervisor.story import Promise


class SupervisorCore:
    """Call a method for each event, then take the plan's actions."""

    def __init__(
        self,
        policy: Policy,
        info: ServerInfo,
        features: Iterable[Callable[[CoreParts], Feature]],
        pid: int = 0,
        now_s: float = 0.0,
    ) -> None:
        self.plan = plan = Plan(now_s)
        self._policy = policy
        self.models: dict[str, ServedModel] = {}
        self.generations: dict[int, Generation] = {}
        #: The service has been told to stop the server.
        self._is_exiting = False
        self._acknowledgements = Acknowledgements(plan)
        self._introductions = Introductions(plan, info, self._acknowledgements)
        self._counts = BrokerCounts(plan, self._introductions)
        self._peers = Peers(
            plan,
            self._introductions,
            self._acknowledgements,
            policy.frontend_roles,
            news=self,
            has_fork_server=policy.has_fork_server,
            shares_ports=policy.shares_ports,
        )
        self._leaving = RetirementQueue(plan, self.generations)
        self._stopping = ShutdownSequence(
            plan,
            self._peers,
            self._introductions,
            self._counts,
            self._leaving,
            policy,
        )
        self.regions = RegionRegistry(
            plan,
            self._acknowledgements,
            self._peers,
            is_allowed=policy.allow_client_shm,
            gpus=info.gpus,
        )
        audience = Audience(self._introductions, self._acknowledgements, self._peers)
        tasks = StubTasks(plan)
        parts = CoreParts(
            plan, policy, info, self, self._introductions, audience, self._counts, tasks
        )
        self._features = Features(plan, [make(parts) for make in features])
        self._introductions.resources.place = self._features.place
        sources = (feature.source for feature in self._features)
        self._readings = ModelReadings(plan, next(filter(None, sources), None))
        preparations = EnvironmentPreparations(plan, self._introductions)
        self.readiness = ReadinessChecks(plan, self.generations)
        of_features = (one for each in self._features for one in each.helpers)
        self._context = self._surroundings(preparations, audience)
        self._connect(info, [preparations, tasks, *of_features, self.readiness], pid)

    def _connect(self, info: ServerInfo, helpers: Sequence[HelperOwner], pid: int) -> None:
        """Connect the parts that handle events of processes and calls, and the status's parts."""
        plan, policy = self.plan, self._policy
        self.staged_files = StagedFiles(plan, info.directory, self.generations)
        self.status = ServerStatus(
            info,
            self.models,
            self.generations,
            peers=self._peers,
            helpers=helpers,
            stopping=self._stopping,
            counts=self._counts,
            features=self._features,
            pid=pid,
        )
        self._notification = ServiceManager(plan, policy.watchdog_interval_s, self)
        loads = LoadCalls(
            self,
            self._peers,
            self.staged_files,
            NestedLoads(self.generations, self._context.load_slots),
            next((why for each in self._features if (why := each.why_never_loaded)), None),
            is_explicit=policy.control_mode == "explicit",
        )
        self._succession = succession = Succession(
            plan,
            self,
            self._notification,
            info.start,
            (self._features, loads, self.regions),
            leaves_models=policy.one_by_one,
        )
        plan.tell(succession.take_over(self._peers.opening.completed))
        self.startup = Startup(plan, policy, self, succession.end_of_predecessor)
        calls = self._control_calls(info, loads)
        self.perform = calls.perform
        self.events = EventRouter(
            plan,
            self.models,
            self.generations,
            peers=self._peers,
            introductions=self._introductions,
            regions=self.regions,
            helpers=helpers,
            stopping=self._stopping,
            status=self.status,
            succession=succession,
            calls=calls,
            acknowledgements=self._acknowledgements,
        )

    def _surroundings(
        self, preparations: EnvironmentPreparations, audience: Audience
    ) -> ModelContext:
        plan, policy = self.plan, self._policy
        return ModelContext(
            plan=plan,
            introductions=self._introductions,
            audience=audience,
            load_slots=LoadSlots(plan, policy.load_slots, policy.load_slot_timeout_s),
            generations=self.generations,
            ensemble_members=EnsembleMembers(self),
            load_order=LoadOrder(self),
            retirements=self._leaving,
            preparations=preparations,
            readings=self._readings,
            listener=self._features,
            policy=policy,
        )

    def _control_calls(self, info: ServerInfo, loads: LoadCalls) -> ControlCallHandler:
        """Put together the table of control calls, from the core's own calls and the features'."""
        tables = [
            self._succession.verbs,
            loads.verbs,
            Queries(self, info, self.status).verbs,
            self.status.verbs,
            self.readiness.verbs,
            self.regions.verbs,
        ]
        tables += [feature.verbs for feature in self._features]
        return ControlCallHandler(self.plan, self, tables, self._succession)

    def take_actions(self) -> list[Action]:
        """Settle, and take the actions to perform now, in this order."""
        return self.plan.take_actions()

    # ---------------------------------------------------------- what happens

    def start(self, started_s: float) -> None:
        """Start the server; the first call. `started_s` is the wall clock."""
        self.status.started(started_s)
        self.plan.server.whenever(
            lambda: self._introductions.ended_generations, self._forget_generations
        )
        self._peers.start()
        self._notification.begin()
        if self._policy.early_liveness:
            self.plan.tell(self._open())
        self.startup.begin()
        self._features.tell(Feature.start)

    def tick(self, now_s: float, guard: Guard = nullcontext) -> None:
        """Advance the time; called before any other event of this moment."""
        self.plan.advance_to(now_s, guard)

    def stop_requested(self) -> None:
        """Handle a request to stop.

        The first one ends the server in order, a second one at once.
        """
        if self.is_ending:
            self.plan.log("W", "The second signal ends the server at once, with all under way.")
            self._stopping.exit_now()
        else:
            self._is_exiting = True
            if not any(self._features.ask(lambda each: each.defer_stop())):
                self.stop()

    def _forget_generations(self, ended: list[int]) -> None:
        """Forget generations whose last process has ended."""
        while ended:
            self.generations.pop(ended.pop(), None)

    def forget_model(self, name: str) -> None:
        """Forget a model that is gone with its directory."""
        del self.models[name]
        self._features.tell(Feature.forget_model, name)

    def publish(self, news: Any) -> None:
        """Tell all frontends."""
        self._peers.publish(news)

    # ------------------------------------------------------ models, for others

    def model_of(self, caller: int) -> str:
        generation, _ = self.events.find_stub(caller)
        return "" if generation is None else generation.blueprint.name

    @property
    def is_open(self) -> bool:
        return self.startup.is_over and self._peers.opening.is_complete

    @property
    def is_stopping(self) -> bool:
        return self._stopping.has_begun

    @property
    def is_ending(self) -> bool:
        """True from the request to stop, though clients may be served as yet."""
        return self.is_stopping or self._is_exiting

    @property
    def is_moving(self) -> bool:
        return self.startup.is_moving

    @property
    def is_repository_missing(self) -> bool:
        return self.startup.is_repository_missing

    def get_or_create_model(self, name: str) -> ServedModel:
        """Return the model; create it if it is unknown."""
        return self.models.setdefault(name, ServedModel(name, self._context))

    def load(
        self, model: str, override: LoadOverride | None, *, renews: bool = False
    ) -> Promise[None]:
        return self.get_or_create_model(model).load(override, again=True, renews=renews)

    def unload(self, model: str, dependents: bool) -> Promise[None]:
        names = self._context.ensemble_members.unload_order(model) if dependents else [model]
        return self.plan.tell(
            self._unload([self.models[name] for name in names if name in self.models])
        )

    async def _unload(self, models: Iterable[ServedModel]) -> None:
        for model in models:
            await model.unload()

    def list_repository(
        self, *, is_patient: bool = False, is_urgent: bool = False
    ) -> Promise[RepositoryNames]:
        return self.plan.tell(
            self._readings.list_models(is_patient=is_patient, is_urgent=is_urgent)
        )

    def summary(self) -> str:
        return self.status.summary()

    def probe_broker(self) -> Promise[None]:
        broker = self._introductions.broker_serial
        return self._acknowledgements.probe(broker) if broker else Promise()

    def of_models(self) -> Iterable[Any]:
        yield from self.startup.news()
        yield from self._features.news()
        for model in self.models.values():
            yield from model.version_infos()

    def of_regions(self) -> Iterable[Any]:
        return self.regions.registration_messages()

    def start_problem(self, ready: Sequence[str]) -> str:
        """Return why a server with these models cannot begin to serve; "" if it can."""
        return next(filter(None, self._features.ask(lambda each: each.start_problem(ready))), "")

    def accept_clients(self) -> None:
        """Let clients connect, once this server has repeated the calls to its predecessor."""
        if not self.is_stopping:
            self.plan.tell(self._open())

    async def _open(self) -> None:
        await self._succession.inherit(self.perform)
        self._peers.opening.begin()

    async def finish_move(self) -> None:
        await self._succession.inherit_rest(self.perform)

    def leave_to_successor(self) -> None:
        """End the server in order; another server has its sockets."""
        self._peers.has_successor = True
        self.stop()

    def stop(self, status: int = 0) -> None:
        """End the server in order."""
        if not self.is_stopping:
            # a listener that this server shut down would be shut in the other one, which may stay
            self._peers.has_successor |= self.events.succession.has_other
            self._stopping.begin(status)
            self.startup.stop()
            self._features.tell(Feature.stop)
            for model in self.models.values():
                model.cancel_loads(SERVER_STOPS)
