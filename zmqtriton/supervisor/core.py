"""The brain of the server: what should run, what does, and what is to be done about it.

The service tells it what has happened and performs the actions that it then takes out of the plan.
Does no I/O, knows no clock, and blocks on nothing, so every race can be replayed in a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from zmqtriton.supervisor import states
from zmqtriton.supervisor.actions import Action, LoadOverride, RepositoryListing
from zmqtriton.supervisor.control.control import ControlCallHandler
from zmqtriton.supervisor.control.log_settings import LogSettings
from zmqtriton.supervisor.control.operations import OperatorCommands
from zmqtriton.supervisor.control.regions import RegionRegistry
from zmqtriton.supervisor.control.repositories import RepositoryRegistry
from zmqtriton.supervisor.control.staged_files import StagedFiles
from zmqtriton.supervisor.control.status import describe_processes, describe_server, load_seconds
from zmqtriton.supervisor.control.trace_settings import TraceSettings
from zmqtriton.supervisor.fleet.acknowledgements import Acknowledgements
from zmqtriton.supervisor.fleet.introductions import Introductions, ServerInfo
from zmqtriton.supervisor.fleet.object_stores import ObjectStores
from zmqtriton.supervisor.fleet.peers import Peers
from zmqtriton.supervisor.fleet.readiness import ReadinessChecks
from zmqtriton.supervisor.fleet.service_manager import ServiceManager
from zmqtriton.supervisor.fleet.shutdown import ShutdownSequence
from zmqtriton.supervisor.models.blueprint import Blueprint, ReadFailure
from zmqtriton.supervisor.models.call_graph import LoadOrder, RetirementQueue
from zmqtriton.supervisor.models.context import LoadSlots, ModelContext
from zmqtriton.supervisor.models.ensembles import EnsembleMembers
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.models.index import repository_index
from zmqtriton.supervisor.models.instance import Instance, stub_event
from zmqtriton.supervisor.models.loading import LoadCallback
from zmqtriton.supervisor.models.model import Model
from zmqtriton.supervisor.models.model_report import is_ready, serving_config
from zmqtriton.supervisor.models.nested_loads import NestedLoads
from zmqtriton.supervisor.models.preparations import EnvironmentPreparations
from zmqtriton.supervisor.models.startup import Startup
from zmqtriton.supervisor.on_demand.broker_counts import BrokerCounts
from zmqtriton.supervisor.on_demand.on_demand import OnDemandLoader
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.policy import Policy
from zmqtriton.supervisor.states import GenerationState
from zmqtriton_floor import wire
from zmqtriton_floor.errors import ZmqTritonError


class Core:
    """Call a method for what has happened, then take the plan's actions."""

    def __init__(
        self, policy: Policy, server: ServerInfo, *, pid: int = 0, now_s: float = 0.0
    ) -> None:
        self.plan = plan = Plan(now_s)
        self._policy = policy
        self._pid = pid
        self._server = server
        self.models: dict[str, Model] = {}
        self.generations: dict[int, Generation] = {}
        self._started_s: dict[int, float] = {}
        self._malformed = 0
        #: Shared memory by serial number, for the status.
        self.segment_bytes: Callable[[], Mapping[int, int]] = dict
        #: The last lines of the log: (model or "", behind which number, how many).
        self.log_lines: Callable[[str, int, int], dict[str, Any]] = _no_lines
        self._acknowledgements = Acknowledgements(plan)
        self._introductions = Introductions(plan, server, self._acknowledgements)
        self._peers = Peers(
            plan,
            self._introductions,
            self._acknowledgements,
            policy.frontend_roles,
            has_fork_server=policy.has_fork_server,
        )
        self.regions = RegionRegistry(
            plan,
            self._acknowledgements,
            self._peers.serving_serials,
            is_allowed=policy.allow_client_shm,
        )
        self._counts = BrokerCounts(plan, self._introductions)
        self.on_demand_loader = OnDemandLoader(plan, policy, self, self._counts)
        self._listen_to_peers()
        self._leaving = RetirementQueue(self.generations)
        within_s, told = policy.exit_timeout_s, self._introductions
        self._stopping = ShutdownSequence(plan, self._peers, told, self._counts, within_s)
        self._stopping.get_generations = self.generations.values
        self._stopping.retire_after_callers = self._leaving.retire_after_callers
        self._notification = ServiceManager(
            plan, policy.watchdog_interval_s, self._probe_broker, self._describe_in_words
        )
        self.log_settings = LogSettings(plan, self._introductions, server.settings_json)
        self.trace_settings = TraceSettings(
            server.settings_json, self._introductions.change_trace_settings
        )
        self.readiness = ReadinessChecks(plan, self.generations)
        self.staged_files = StagedFiles(plan, server.directory)
        is_explicit = policy.control_mode == "explicit"
        self.repositories = RepositoryRegistry(plan, policy.repositories, is_explicit=is_explicit)
        self.operator_commands = OperatorCommands(
            plan, self.generations, lambda m, d: self.load(m, None, d)
        )
        self._control = ControlCallHandler(plan, self, is_explicit=is_explicit)
        self._startup = Startup(plan, policy, self)
        self._preparations = EnvironmentPreparations(plan, self._introductions)
        self._stores = ObjectStores(plan, self._introductions, policy)
        self._context = self._surroundings(policy)
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
            object_stores=self._stores,
            load_retries=policy.load_retries,
            has_on_demand_loading=policy.load_on_demand,
        )

    def _listen_to_peers(self) -> None:
        self._peers.version_infos = self._all_news
        self._peers.region_messages = self.regions.registration_messages
        self._peers.on_broker_lost = self._broker_lost
        self._peers.on_statistics = self._counts.handle_statistics

    def take_actions(self) -> list[Action]:
        """What is to be done now, in this order."""
        self._forget_the_ended()
        used = [g.blueprint.directory for g in self.generations.values()]
        self.staged_files.remove_unused(used)
        self._stores.sweep(used, self.models)
        if self._stopping.has_begun:
            self._stopping.advance()
        self._leaving.retire_unneeded()
        self.on_demand_loader.advance()
        is_ready = self._startup.is_over and self._peers.is_listening
        self._notification.update(is_ready=is_ready, is_stopping=self.is_stopping)
        return self.plan.take_actions()

    # ---------------------------------------------------------- what happens

    def start(self, started_s: float) -> None:
        """The first call; `started_s` is the wall clock."""
        self._started_s[0] = started_s
        self._peers.start()
        self._notification.begin()
        if self._policy.early_liveness:
            self._peers.accept_clients()
        self._startup.begin()

    def tick(self, now_s: float) -> None:
        """Time passes; call it before anything else that happens at this moment."""
        self.plan.advance_to(now_s)

    def process_started(self, serial: int, pid: int, started_s: float) -> None:
        peer = self._peers.find_peer(serial)
        if peer is not None:
            self._peers.process_started(peer, pid, started_s)
            return
        self._started_s[serial] = started_s
        self._preparations.process_started(serial, pid, started_s)
        self._stores.process_started(serial, pid, started_s)
        self._tell_stub(serial, states.ProcessStarted(pid))

    def worker_forked(self, pid: int, started_s: float) -> int:
        """Gunicorn has forked; returns the serial number of the new process's lifeline."""
        serial = self.plan.new_serial()
        self._peers.worker_forked(serial, pid, started_s)
        return serial

    def process_ended(
        self, serial: int, reason: str, last_words: str = "", crash: str = ""
    ) -> None:
        """It is dead, and everything that it had said was received before."""
        peer = self._peers.find_peer(serial)
        if peer is not None:
            self._peers.process_ended(peer, reason)
            self.regions.frontend_died(serial)
            return
        self._started_s.pop(serial, None)
        self._preparations.process_ended(serial, reason, last_words)
        self._stores.process_ended(serial, reason)
        self.readiness.stub_ended(serial)
        self._tell_stub(serial, states.ProcessExited(reason, last_words, crash))

    def process_frozen(self, serial: int) -> None:
        """It was stopped by a signal and does not go on."""
        peer = self._peers.find_peer(serial)
        if peer is not None:
            self._peers.process_frozen(peer)
            return
        self._tell_stub(serial, states.KillRequested("the process was stopped by a signal"))

    def messages_malformed(self, messages: int) -> None:
        """Messages were dropped: they did not decode, or made no sense from where they came."""
        self._malformed += messages

    def message_received(self, serial: int, message: Any) -> None:
        """A message of a process, or of a caller on the control socket."""
        if isinstance(message, wire.Call):
            self._control.handle(serial, message)
            return
        peer = self._peers.find_peer(serial)
        if peer is None:
            self._received_from_stub(serial, message)
        elif isinstance(message, (wire.Drained, wire.ModelCalled)):
            self._hear_of_generation(message)
        elif isinstance(message, wire.RegionReleased):
            self.regions.region_released(serial, message.number)
        elif isinstance(message, wire.ExecutionOverdue):
            self._tell_stub(message.serial, states.KillRequested(message.text, can_dump_stack=True))
        elif isinstance(message, wire.FirstExecutionDone):
            _, instance = self._find_stub(message.serial)
            if instance is not None:
                instance.mark_executed()
        else:
            self._peers.handle_message(peer, message)

    def _hear_of_generation(self, message: wire.Drained | wire.ModelCalled) -> None:
        generation = self.generations.get(message.generation)
        if not message.generation:
            self._stopping.on_sequences_ended()
        if generation is None:
            return
        if isinstance(message, wire.ModelCalled):
            generation.callees.add(message.model)
        elif message.serial:
            generation.on_instance_drained(message.serial)
        else:
            generation.on_drained()

    def model_read(self, ticket: int, found: Blueprint | ReadFailure) -> None:
        """The answer to ReadModel."""
        self._stores.on_model_read(ticket, found)

    def repository_listed(self, ticket: int, found: RepositoryListing) -> None:
        """The answer to ListRepository."""
        self._stores.on_repository_listed(ticket, found)

    def stop_requested(self) -> None:
        """The first time in order, the second time at once."""
        if self._stopping.has_begun:
            self.plan.log("W", "The second signal ends the server at once, with all under way.")
            self._stopping.exit_now()
        else:
            self.stop()

    # -------------------------------------------------------- stubs and death

    def _received_from_stub(self, serial: int, message: Any) -> None:
        """Or from a process that prepares an environment, or asks object stores."""
        event = stub_event(message)
        if event is not None:
            self._tell_stub(serial, event)
        elif isinstance(message, wire.CallResult):
            takers = (self._stores, self.readiness, self._preparations)
            any(taker.handle_result(serial, message) for taker in takers)

    def _tell_stub(self, serial: int, event: states.Event) -> None:
        generation, instance = self._find_stub(serial)
        if generation is None or instance is None:
            return
        try:
            generation.handle(instance, event)
        except states.TransitionError as error:
            # A model can make its stub say anything; it does not get further than this.
            if not instance.has_sent_invalid_event:
                instance.has_sent_invalid_event = True
                self.plan.log("W", f"{error}; more of this will only be counted")
            self.messages_malformed(1)

    def _find_stub(self, serial: int) -> tuple[Generation | None, Instance | None]:
        for generation in self.generations.values():
            instance = generation.find_instance(serial)
            if instance is not None:
                return generation, instance
        return None, None

    def _broker_lost(self) -> None:
        self._stopping.exit_now()

    def _forget_the_ended(self) -> None:
        for number in [n for n, g in self.generations.items() if g.state is GenerationState.ENDED]:
            del self.generations[number]
        if self._startup.is_over:
            for name in [
                n for n, m in self.models.items() if m.history.is_directory_gone and m.has_ended
            ]:
                del self.models[name]
                self._peers.publish(wire.ForgetModel(name))
                self.trace_settings.forget_model(name)

    # ------------------------------------------------------ models, for others

    @property
    def is_stopping(self) -> bool:
        return self._stopping.has_begun

    def get_or_create_model(self, name: str) -> Model:
        """It, made known if it was not."""
        return self.models.setdefault(name, Model(name, self._context))

    def is_stub(self, caller: int) -> bool:
        return self._find_stub(caller)[1] is not None

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
        self._stores.list_models(then)

    def request_index(self, done: Callable[[list[dict[str, Any]]], None]) -> None:
        self.list_repository(
            lambda found: done(
                repository_index(found, self.models, self.on_demand_loader.never_loaded_entry)
            )
        )

    def request_status(self, done: Callable[[dict[str, Any]], None]) -> None:
        """`done` gets every process, and what the broker has counted."""
        self._counts.request(lambda found: done({**self._describe(), **found}))

    def _probe_broker(self, then: Callable[[], None]) -> None:
        if self._introductions.broker_serial:
            self._acknowledgements.probe(self._introductions.broker_serial, then)

    def _describe_in_words(self) -> str:
        states = [news.state for news in self._all_news() if news.version]
        ready = f"{states.count('READY')} of {len(states)} model versions are ready"
        return f"stopping; {ready}" if self.is_stopping else ready

    def _describe(self) -> dict[str, Any]:
        phase = self._stopping.phase.value
        processes = describe_processes(
            self._pid, self._started_s, phase, self._peers.all(), self.generations.values()
        )
        processes += self._preparations.describe() + self._stores.describe()
        held = self.segment_bytes()
        for process in processes:
            process["segment_bytes"] = held.get(process.get("serial", 0), 0)
        words = self._describe_in_words()
        return {
            "server": describe_server(self._server.settings_json, self._server.directory, words),
            "processes": processes,
            "malformed": self._malformed,
            "repositories": self.repositories.paths,
            **self.on_demand_loader.describe(),
            "loads": load_seconds(self.generations.values()),
        }

    def _all_news(self) -> Iterable[wire.VersionInfo]:
        return [news for model in self.models.values() for news in model.version_infos()]

    def accept_clients(self) -> None:
        """Lets clients connect."""
        if not self.is_stopping:
            self._peers.accept_clients()

    def stop(self, status: int = 0) -> None:
        """Ends the server in order."""
        if self._stopping.has_begun:
            return
        self._stopping.begin(status)
        self.on_demand_loader.stop()
        for model in self.models.values():
            model.loads.cancel_all("Server exiting")


def _no_lines(model: str, after: int, limit: int) -> dict[str, Any]:
    return {"lines": [], "last": 0, "lost": 0}
