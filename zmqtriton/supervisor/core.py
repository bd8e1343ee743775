"""The brain of the server: what should run, what does, and what is to be done about it.

The service tells it what has happened and performs the actions that it then takes out of the plan.
Does no I/O, knows no clock, and blocks on nothing, so every race can be replayed in a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from zmqtriton.supervisor import states
from zmqtriton.supervisor.actions import Action, Listing, Override
from zmqtriton.supervisor.control.control import Control
from zmqtriton.supervisor.control.log_settings import LogSettings
from zmqtriton.supervisor.control.operations import Operations
from zmqtriton.supervisor.control.regions import Regions
from zmqtriton.supervisor.control.repositories import Repositories
from zmqtriton.supervisor.control.staged_files import StagedFiles
from zmqtriton.supervisor.control.status import describe, describe_server, load_times
from zmqtriton.supervisor.control.trace_settings import TraceSettings
from zmqtriton.supervisor.fleet.acknowledgements import Acknowledgements
from zmqtriton.supervisor.fleet.introductions import Introductions, Server
from zmqtriton.supervisor.fleet.object_stores import ObjectStores
from zmqtriton.supervisor.fleet.peers import Peers
from zmqtriton.supervisor.fleet.readiness import Readiness
from zmqtriton.supervisor.fleet.service_manager import ServiceManager
from zmqtriton.supervisor.fleet.shutdown import ShutdownSequence
from zmqtriton.supervisor.models.blueprint import Blueprint, Unreadable
from zmqtriton.supervisor.models.call_graph import Leaving, LoadOrder
from zmqtriton.supervisor.models.context import ModelContext, Slots
from zmqtriton.supervisor.models.ensembles import Members
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.models.index import index_of
from zmqtriton.supervisor.models.instance import Instance, stub_message
from zmqtriton.supervisor.models.loading import Done
from zmqtriton.supervisor.models.model import Model
from zmqtriton.supervisor.models.nested_loads import NestedLoads
from zmqtriton.supervisor.models.preparations import Preparations
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

    def __init__(self, policy: Policy, server: Server, *, pid: int = 0, now_s: float = 0.0) -> None:
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
            policy.roles,
            has_fork_server=policy.has_fork_server,
        )
        self.regions = Regions(
            plan,
            self._acknowledgements,
            self._peers.serving,
            is_allowed=policy.allow_client_shm,
        )
        self._counts = BrokerCounts(plan, self._introductions)
        self.demand = OnDemandLoader(plan, policy, self, self._counts)
        self._listen_to_peers()
        self._leaving = Leaving(self.generations)
        within_s, told = policy.exit_timeout_s, self._introductions
        self._stopping = ShutdownSequence(plan, self._peers, told, self._counts, within_s)
        self._stopping.generations = self.generations.values
        self._stopping.leave = self._leaving.leave
        self._notification = ServiceManager(
            plan, policy.beat_s, self._probe_broker, self._describe_in_words
        )
        self.log_settings = LogSettings(plan, self._introductions, server.settings)
        self.trace_settings = TraceSettings(server.settings, self._introductions.tell_tracing)
        self.readiness = Readiness(plan, self.generations)
        self.staged = StagedFiles(plan, server.directory)
        is_explicit = policy.control_mode == "explicit"
        self.repositories = Repositories(plan, policy.repositories, is_explicit=is_explicit)
        self.operations = Operations(plan, self.generations, lambda m, d: self.load(m, None, d))
        self._control = Control(plan, self, is_explicit=is_explicit)
        self._startup = Startup(plan, policy, self)
        self._preparations = Preparations(plan, self._introductions)
        self._stores = ObjectStores(plan, self._introductions, policy)
        self._around = self._surroundings(policy)
        self.nested = NestedLoads(self.generations, self._around.slots)

    def _surroundings(self, policy: Policy) -> ModelContext:
        plan = self.plan
        return ModelContext(
            plan=plan,
            introductions=self._introductions,
            acknowledgements=self._acknowledgements,
            slots=Slots(plan, policy.load_slots, policy.load_patience_s),
            frontends=self._peers.serving,
            publish=self._peers.publish,
            generations=self.generations,
            members=Members(self.models, self.model),
            load_order=LoadOrder(self.models, self.model),
            leaving=self._leaving,
            preparations=self._preparations,
            stores=self._stores,
            retries=policy.load_retries,
            on_demand=policy.load_on_demand,
        )

    def _listen_to_peers(self) -> None:
        self._peers.news = self._all_news
        self._peers.regions = self.regions.messages
        self._peers.on_broker_lost = self._broker_lost
        self._peers.on_statistics = self._counts.answered

    def actions(self) -> list[Action]:
        """What is to be done now, in this order."""
        self._forget_the_ended()
        used = [g.blueprint.directory for g in self.generations.values()]
        self.staged.sweep(used)
        self._stores.sweep(used, self.models)
        if self._stopping.has_begun:
            self._stopping.proceed()
        self._leaving.proceed()
        self.demand.proceed()
        is_ready = self._startup.is_over and self._peers.is_listening
        self._notification.proceed(is_ready=is_ready, is_stopping=self.is_stopping)
        return self.plan.take()

    # ---------------------------------------------------------- what happens

    def start(self, started_s: float) -> None:
        """The first call; `started_s` is the wall clock."""
        self._started_s[0] = started_s
        self._peers.start()
        self._notification.begin()
        if self._policy.early_liveness:
            self._peers.open()
        self._startup.begin()

    def tick(self, now_s: float) -> None:
        """Time passes; call it before anything else that happens at this moment."""
        self.plan.advance(now_s)

    def process_started(self, serial: int, pid: int, started_s: float) -> None:
        peer = self._peers.find(serial)
        if peer is not None:
            self._peers.process_started(peer, pid, started_s)
            return
        self._started_s[serial] = started_s
        self._preparations.started(serial, pid, started_s)
        self._stores.started(serial, pid, started_s)
        self._tell_stub(serial, states.ProcessStarted(pid))

    def branched(self, pid: int, started_s: float) -> int:
        """Gunicorn has forked; returns the serial number of the new process's lifeline."""
        serial = self.plan.new_serial()
        self._peers.branched(serial, pid, started_s)
        return serial

    def process_ended(
        self, serial: int, reason: str, last_words: str = "", crash: str = ""
    ) -> None:
        """It is dead, and everything that it had said was received before."""
        peer = self._peers.find(serial)
        if peer is not None:
            self._peers.process_ended(peer, reason)
            self.regions.gone(serial)
            return
        self._started_s.pop(serial, None)
        self._preparations.ended(serial, reason, last_words)
        self._stores.ended(serial, reason)
        self.readiness.gone(serial)
        self._tell_stub(serial, states.ProcessExited(reason, last_words, crash))

    def process_frozen(self, serial: int) -> None:
        """It was stopped by a signal and does not go on."""
        peer = self._peers.find(serial)
        if peer is not None:
            self._peers.process_frozen(peer)
            return
        self._tell_stub(serial, states.Condemned("the process was stopped by a signal"))

    def malformed(self, messages: int) -> None:
        """Messages were dropped: they did not decode, or made no sense from where they came."""
        self._malformed += messages

    def received(self, serial: int, message: Any) -> None:
        """A message of a process, or of a caller on the control socket."""
        if isinstance(message, wire.Call):
            self._control.handle(serial, message)
            return
        peer = self._peers.find(serial)
        if peer is None:
            self._received_from_stub(serial, message)
        elif isinstance(message, (wire.Drained, wire.ModelCalled)):
            self._hear_of_generation(message)
        elif isinstance(message, wire.RegionReleased):
            self.regions.left(serial, message.number)
        elif isinstance(message, wire.ExecutionOverdue):
            self._tell_stub(message.serial, states.Condemned(message.text, can_tell=True))
        elif isinstance(message, wire.FirstExecutionDone):
            _, instance = self._find_stub(message.serial)
            if instance is not None:
                instance.executed()
        else:
            self._peers.received(peer, message)

    def _hear_of_generation(self, message: wire.Drained | wire.ModelCalled) -> None:
        generation = self.generations.get(message.generation)
        if not message.generation:
            self._stopping.sequences_are_over()
        if generation is None:
            return
        if isinstance(message, wire.ModelCalled):
            generation.calls.add(message.model)
        elif message.serial:
            generation.dismissed(message.serial)
        else:
            generation.drained()

    def model_read(self, ticket: int, found: Blueprint | Unreadable) -> None:
        """The answer to ReadModel."""
        self._stores.have_read(ticket, found)

    def repository_listed(self, ticket: int, found: Listing) -> None:
        """The answer to ListRepository."""
        self._stores.listed(ticket, found)

    def stop_requested(self) -> None:
        """The first time in order, the second time at once."""
        if self._stopping.has_begun:
            self.plan.log("W", "The second signal ends the server at once, with all under way.")
            self._stopping.force()
        else:
            self.stop()

    # -------------------------------------------------------- stubs and death

    def _received_from_stub(self, serial: int, message: Any) -> None:
        """Or from a process that prepares an environment, or asks object stores."""
        event = stub_message(message)
        if event is not None:
            self._tell_stub(serial, event)
        elif isinstance(message, wire.CallResult):
            takers = (self._stores, self.readiness, self._preparations)
            any(taker.answered(serial, message) for taker in takers)

    def _tell_stub(self, serial: int, event: states.Event) -> None:
        generation, instance = self._find_stub(serial)
        if generation is None or instance is None:
            return
        try:
            generation.handle(instance, event)
        except states.TransitionError as error:
            # A model can make its stub say anything; it does not get further than this.
            if not instance.has_lied:
                instance.has_lied = True
                self.plan.log("W", f"{error}; more of this will only be counted")
            self.malformed(1)

    def _find_stub(self, serial: int) -> tuple[Generation | None, Instance | None]:
        for generation in self.generations.values():
            instance = generation.find(serial)
            if instance is not None:
                return generation, instance
        return None, None

    def _broker_lost(self) -> None:
        self._stopping.force()

    def _forget_the_ended(self) -> None:
        for number in [n for n, g in self.generations.items() if g.state is GenerationState.ENDED]:
            del self.generations[number]
        if self._startup.is_over:
            for name in [n for n, m in self.models.items() if m.is_leaving and m.has_ended]:
                del self.models[name]
                self._peers.publish(wire.ForgetModel(name))
                self.trace_settings.forget(name)

    # ------------------------------------------------------ models, for others

    @property
    def is_stopping(self) -> bool:
        return self._stopping.has_begun

    def model(self, name: str) -> Model:
        """It, made known if it was not."""
        return self.models.setdefault(name, Model(name, self._around))

    def is_stub(self, caller: int) -> bool:
        return self._find_stub(caller)[1] is not None

    def is_model_ready(self, model: str, version: int) -> bool:
        return model in self.models and self.models[model].is_ready(version)

    def load(self, model: str, override: Override | None, done: Done) -> None:
        self.model(model).load(done, override=override, again=True)

    def unload(self, model: str, dependents: bool, done: Done) -> None:
        names = self._around.members.dependents(model) if dependents else [model]
        left = [self.models[name] for name in names if name in self.models]

        def unload_next(_: ZmqTritonError | None) -> None:
            if left:
                left.pop(0).unload(unload_next)
            else:
                done(None)

        unload_next(None)

    def serving_config(self, model: str, version: int) -> dict[str, Any]:
        return self.models[model].serving_config(version) if model in self.models else {}

    def list_repository(self, then: Callable[[Listing], None]) -> None:
        self._stores.names(then)

    def index(self, done: Callable[[list[dict[str, Any]]], None]) -> None:
        self.list_repository(
            lambda found: done(index_of(found, self.models, self.demand.never_loaded))
        )

    def status(self, done: Callable[[dict[str, Any]], None]) -> None:
        """`done` gets every process, and what the broker has counted."""
        self._counts.ask(lambda found: done({**self._describe(), **found}))

    def _probe_broker(self, then: Callable[[], None]) -> None:
        if self._introductions.broker:
            self._acknowledgements.probe(self._introductions.broker, then)

    def _describe_in_words(self) -> str:
        states = [news.state for news in self._all_news() if news.version]
        ready = f"{states.count('READY')} of {len(states)} model versions are ready"
        return f"stopping; {ready}" if self.is_stopping else ready

    def _describe(self) -> dict[str, Any]:
        phase = self._stopping.phase.value
        processes = describe(
            self._pid, self._started_s, phase, self._peers.all(), self.generations.values()
        )
        processes += self._preparations.describe() + self._stores.describe()
        held = self.segment_bytes()
        for process in processes:
            process["segment_bytes"] = held.get(process.get("serial", 0), 0)
        words = self._describe_in_words()
        return {
            "server": describe_server(self._server.settings, self._server.directory, words),
            "processes": processes,
            "malformed": self._malformed,
            "repositories": self.repositories.paths,
            **self.demand.describe(),
            "loads": load_times(self.generations.values()),
        }

    def _all_news(self) -> Iterable[wire.VersionInfo]:
        return [news for model in self.models.values() for news in model.news()]

    def open(self) -> None:
        """Lets clients connect."""
        if not self.is_stopping:
            self._peers.open()

    def stop(self, status: int = 0) -> None:
        """Ends the server in order."""
        if self._stopping.has_begun:
            return
        self._stopping.begin(status)
        self.demand.stop()
        for model in self.models.values():
            model.cancel_loads("Server exiting")


def _no_lines(model: str, after: int, limit: int) -> dict[str, Any]:
    return {"lines": [], "last": 0, "lost": 0}
