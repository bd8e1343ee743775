"""The core in a world without processes: what it decides happens at once, or as a test wants it.

Stubs load unless told otherwise, the broker and the frontends confirm, and everything that was said
is kept. Time passes only when `advance` is called.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from tests.floor.reasons import because
from tests.supervisor.readings import Readings
from tests.supervisor.settings import settings as server_settings
from zmqtriton.environments.demand import SERVER_ENVIRONMENT
from zmqtriton.reading.blueprint import (
    Blueprint,
    EnsembleBlueprint,
    FinalConfig,
    InstanceSlot,
    LoadOverride,
    ReadFailure,
    VersionBlueprint,
)
from zmqtriton.repository.scan import VersionSelection
from zmqtriton.supervisor import actions
from zmqtriton.supervisor.core import SupervisorCore
from zmqtriton.supervisor.features.table import all_features
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.models.instance import StubPlace
from zmqtriton.supervisor.settings import BYTECODE_FOLDER, Policy, ServerInfo
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError, ZmqTritonError
from zmqtriton_floor.logs import LogOptions
from zmqtriton_floor.reasons import Reason

ROLES = ("http-arbiter", "grpc", "metrics")
#: The order of the stories and events of a moment, by a seed; without one, one after the other.
ORDER = os.environ.get("ZT_ORDER_OF_STORIES", "")
HANGS, LOADS = "hangs", "loads"


def make_blueprint(
    name: str,
    fingerprint: str = "1",
    versions: tuple[int, ...] = (1,),
    instances: int = 1,
    problem: str = "",
    finish: Callable[[str], FinalConfig] | None = None,
) -> Blueprint:
    places = tuple(InstanceSlot(f"{name}_0_{i}", "CPU", 0) for i in range(instances))
    finished = FinalConfig(json.dumps({"name": name}), b"proto", places)
    return Blueprint(
        name=name,
        directory=f"/models/{name}",
        fingerprint=fingerprint,
        environment=SERVER_ENVIRONMENT,
        config=json.dumps({"name": name}),
        first_slot=places[0],
        versions={
            n: VersionBlueprint(
                f"/models/{name}/{n}/model.py", InternalError(problem) if problem else None
            )
            for n in versions
        },
        final_config=None,
        finalize_config=finish or (lambda reply: finished),
    )


def make_ensemble(name: str, *members: str, version: int = -1) -> Blueprint:
    """Calls each of these models once."""

    def finish(configs: Mapping[str, FinalConfig]) -> FinalConfig:
        assert set(members) == set(configs)
        return FinalConfig(json.dumps({"name": name}), b"proto", ())

    parts = EnsembleBlueprint(tuple((member, version) for member in members), finish)
    return replace(make_blueprint(name), final_config=None, ensemble=parts)


class SupervisorHarness:
    """A server. `stubs` says per model what its stubs do: LOADS, HANGS, or why they fail."""

    def __init__(self, *models: Blueprint, **policy: Any) -> None:
        """Beside features, settings, stubs and used_share it is how the supervisor is to work."""
        policy.setdefault("frontend_roles", ROLES)
        stubs = policy.pop("stubs", {})
        settings = policy.pop("settings", None) or server_settings()
        used_share = policy.pop("used_share", lambda gpu: None)
        server = ServerInfo(
            "/run/x",
            settings,
            lambda: b"0123456789abcdef",
            used_gpu_share=used_share,
            gpus=policy.pop("gpus", ()),
            max_instances=policy.pop("max_instances", float("inf")),
            log_lines=lambda *arguments: self.log_lines(*arguments),
            clock_step_s=lambda: self.clock_step_s,
            segment_bytes=dict,
        )
        features = policy.pop("features", all_features())
        own = {each.name: policy.pop(each.name) for each in fields(Policy) if each.name in policy}
        self.core = SupervisorCore(Policy(**own, of_add_ons=policy), server, features, pid=1)
        self.models = {model.name: model for model in models}
        #: Seconds by which the wall clock was set.
        self.clock_step_s = 0.0
        #: Reads the log.
        self.log_lines: Callable[[str, int, int], dict[str, Any]] = lambda *arguments: {}
        #: Reads models of real directories, in place of those above.
        self.reader: Readings | None = None
        self.stub_behaviours: dict[str, str] = stubs
        #: Models that have is_ready.
        self.models_with_is_ready: set[str] = set()
        self.now_s = 0.0
        self.roles: dict[int, str] = {}
        self.stub_names: dict[int, str] = {}
        #: The cores of stubs, and variables that they have got, by serial.
        self.cores: dict[int, tuple[int, ...]] = {}
        self.variables: dict[int, Mapping[str, str]] = {}
        #: What stubs are forks of.
        self.templates: set[int] = set()
        #: Serial of the spare process of each stub; 0 without one.
        self.spawned_with: list[int] = []
        #: Who prepares the environment of a model.
        self.preparation_serials: dict[str, int] = {}
        self.alive: set[int] = set()
        self.log: list[str] = []
        #: What the supervisor was to log from then on.
        self.log_options: list[LogOptions] = []
        self.tables: list[list[tuple[str, str, str]]] = []
        self.complaints: list[str] = []
        #: What was done with new connections to ports that others share, and how often was looked
        #: who these are.
        self.port_actions: list[str] = []
        self.looks_at_ports = 0
        self.are_ports_known = False
        #: What the service manager has heard.
        self.service_manager_texts: list[str] = []
        self.status: int | None = None
        #: Directories of loads.
        self.removed: list[str] = []
        #: The models whose files were looked at last.
        self.watched: tuple[str, ...] = ()
        self.sent: list[tuple[int, Any]] = []
        #: Processes that confirm nothing.
        self.silent: set[int] = set()
        #: It listens when it is told to.
        self.is_grpc_up = True
        #: Roles and stubs that do not end when they are asked to.
        self.stubborn: set[str] = set()
        #: Stubs may map clients' shared memory.
        self.can_map_regions = False
        #: Why a directory cannot be added or taken away; None: it can.
        self.repository_error: ZmqTritonError | None = None
        #: Why the models cannot be listed; None: they can.
        self.listing_error: ZmqTritonError | None = None
        #: Models of repositories that do not answer, each with that as its problem.
        self.silent_models: dict[str, Reason] = {}
        #: Whether all were to be waited for, for each listing.
        self.patience: list[bool] = []
        self.open_regions: set[int] = set()
        #: Dead processes, each with the numbers of the segments that stay.
        self.kept_segments: list[tuple[int, list[int]]] = []
        #: Those that requests use.
        self.used_regions: set[int] = set()
        #: Stubs that have closed regions open.
        self.region_readers: set[int] = set()
        #: What the broker has counted.
        self.model_stats: list[dict[str, Any]] = []
        #: Answers what a thread would be asked.
        self.answer_in_background: Callable[[Any], Any] = lambda call: call()
        #: Whether the broker still has requests of retired generations.
        self.is_busy = False
        #: Whether a client has a sequence to go on with.
        self.has_sequences = False
        #: As many events come before the supervisor acts.
        self._burst: Callable[[], int] = lambda: 1
        self._pids = 100
        self._last_call = 0
        self._events: deque[Callable[[], None]] = deque()
        if ORDER:
            self.explore(ORDER)

    def explore(self, seed: int | str) -> None:
        """Let several events come at once, and what awaits them go on in the order of the seed."""
        chance = random.Random(seed)
        self.core.plan.ready.pick = chance.randrange
        self._burst = lambda: chance.choice((1, 1, 2, 5))

    # ------------------------------------------------------------------ driving

    def start(self) -> SupervisorHarness:
        self.core.start(1000.0)
        return self.run_until_idle()

    def stop(self) -> SupervisorHarness:
        """The server is told to end, as by a signal."""
        self.core.stop_requested()
        return self.run_until_idle()

    def run_until_idle(self) -> SupervisorHarness:
        """Until nothing happens any more."""
        while True:
            todo = self.core.take_actions()
            for action in todo:
                self._perform(action)
            if self._events:
                for _ in range(min(self._burst(), len(self._events))):
                    self._events.popleft()()
            elif not todo:
                return self

    def advance(self, seconds: float) -> SupervisorHarness:
        """Every timer in its turn, and what follows from it."""
        end_s = self.now_s + seconds
        while (due_s := self.core.plan.next_deadline_s()) is not None and due_s <= end_s:
            self.now_s = max(self.now_s, due_s)
            self.core.tick(self.now_s)
            self.run_until_idle()
        self.now_s = end_s
        self.core.tick(end_s)
        return self.run_until_idle()

    def tick(self) -> SupervisorHarness:
        """Do what is due in this moment, such as a first restart."""
        return self.advance(0.0)

    def fork_http_worker(self) -> int:
        """Gunicorn forks; the new process's serial number."""
        self._pids += 1
        serial = self.core.events.worker_forked(self._pids, 1000.0)
        self.roles[serial] = "http"
        self.alive.add(serial)
        self.run_until_idle()
        return serial

    def kill_process(
        self,
        serial: int,
        reason: str = "killed by SIGKILL",
        words: str = "",
        *,
        had_begun: bool = True,
    ) -> SupervisorHarness:
        self._end(serial, reason, words, had_begun=had_begun)
        return self.run_until_idle()

    def receive(self, serial: int, message: Any) -> SupervisorHarness:
        self.core.events.message_received(serial, message)
        return self.run_until_idle()

    def finish_load(self, serial: int) -> None:
        """A stub that hangs is through with its load."""
        self.receive(serial, wire.ConfigCompleted("{}"))
        self.receive(serial, wire.ModelLoaded())

    def call(self, verb: str, arguments: dict[str, Any] | None = None) -> Call:
        """A call on the control socket; `.answer` is None until it is answered."""
        return self.call_as(self.core.plan.new_serial(), verb, arguments)

    def call_as(self, caller: int, verb: str, arguments: dict[str, Any] | None = None) -> Call:
        """The same by a process, such as a frontend for its client."""
        self._last_call += 1
        number = self._last_call
        self.receive(caller, wire.Call(number, verb, json.dumps(arguments or {})))
        return Call(self, caller, number)

    # ------------------------------------------------------------------ looking

    def serial(self, role: str) -> int:
        """Of the living process of this role, or of the stub of this name."""
        serials = [
            s for s in sorted(self.alive) if role in (self.roles.get(s), self.stub_names.get(s))
        ]
        assert serials, f"no living {role}"
        return serials[-1]

    def living(self, role: str) -> list[int]:
        return [s for s in sorted(self.alive) if self.roles.get(s) == role]

    def generation(self, model: str, version: int = 1) -> Generation:
        generation = self.core.models[model].versions[version].generation
        assert generation is not None
        return generation

    def instance(self, model: str) -> StubPlace:
        return self.generation(model).instances[0]

    def messages_to(self, role: str, kind: type[Any]) -> list[Any]:
        """Every message of this kind that processes of this role were sent."""
        return [m for s, m in self.sent if self.roles.get(s) == role and isinstance(m, kind)]

    def latest_version_info(self, model: str, version: int = 1) -> wire.VersionInfo:
        """The last that was told of it."""
        infos = [
            n
            for n in self.messages_to("grpc", wire.VersionInfo)
            if (n.model, n.version) == (model, version)
        ]
        return infos[-1]

    def index(self) -> list[dict[str, Any]]:
        return self.call("index").result

    def has_logged(self, text: str) -> bool:
        return any(text in line for line in self.log)

    # ------------------------------------------------------------- what happens

    def _perform(self, action: actions.Action) -> None:
        match action:
            case actions.Send(serial, message):
                self.sent.append((serial, message))
                if serial in self.alive:
                    self._react(serial, message)
            case actions.Log(level, text):
                self.log.append(f"{level} {text}")
            case actions.ShowTables(rows, _):
                self.tables.append(rows)
            case actions.ConfigureLogging(options):
                self.log_options.append(options)
            case actions.NotifyServiceManager(text):
                self.service_manager_texts.append(text)
            case actions.PrintError(text):
                self.complaints.append(text)
            case actions.RemoveDirectory(path) if f"/{BYTECODE_FOLDER}/" not in path:
                self.removed.append(path)
            case actions.Exit(status):
                self.status = status
            case _:
                self._perform_outside(action)

    def _perform_outside(self, action: actions.Action) -> None:
        """Do what has to do with processes and files."""
        match action:
            case actions.Spawn(serial) | actions.StartSpare(serial):
                self._start(serial, getattr(action, "role", "spare"))
            case actions.SpawnStub(serial, _, _, instance, template=template) as spawned:
                self.spawned_with.append(spawned.spare)
                assignment = spawned.assignment
                self.templates |= {template.serial} if template else set()
                self.cores[serial] = assignment.cores
                self.variables[serial] = assignment.variables
                self.stub_names[serial] = instance
                self._start(serial, "stub")
            case actions.EndTemplate(serial):
                self.templates.discard(serial)
            case actions.PrepareEnvironment(serial, model, _):
                self._start(serial, "environment")
                self.preparation_serials[model] = serial
            case actions.Signal(serial, number, _, ""):  # no others end a process
                self._handle_signal(serial, number)
            case actions.ReadStacks(ticket, serials):
                lines = {serial: [f"stack of {self.stub_names[serial]}"] for serial in serials}
                self._schedule(lambda: self.core.plan.answer(ticket, lines))
            case actions.KeepSegments(owner, segments):
                self.kept_segments.append((owner, [*segments]))
            case actions.SendElsewhere() | actions.TakeClientsBack():
                self.port_actions.append(type(action).__name__)
            case actions.LookAtPorts(ticket):
                self.looks_at_ports += 1
                is_enough = self.are_ports_known
                self._schedule(lambda: self.core.plan.answer(ticket, is_enough))
            case _:
                self._perform_on_files(action)

    def _perform_on_files(self, action: actions.Action) -> None:
        match action:
            case actions.Pin(serial, cores):
                self.cores[serial] = cores
            case actions.OpenRegion(ticket, number):
                self.open_regions.add(number)
                self._schedule(lambda: self.core.plan.answer(ticket, self.can_map_regions))
            case actions.CloseRegion(number, ticket):
                self.open_regions.discard(number)
                self._schedule(lambda: self.core.plan.answer(ticket, self.region_readers))
            case actions.InBackground(ticket, call):
                answer = self.answer_in_background(call)
                self._schedule(lambda: self.core.plan.answer(ticket, answer))
            case actions.ReadModel(ticket, model, override, _, selection):
                self._schedule(
                    lambda: self.core.plan.answer(ticket, self.read(model, override, selection))
                )
            case actions.KeepDecisions() if self.reader is not None:
                self.reader.keep_decisions(action)
            case actions.LookAtFiles(ticket, watched):
                self.watched = watched
                seen = {n: self.models[n].fingerprint for n in watched if n in self.models}
                looked = actions.FileReport(seen, 0.0)
                self._schedule(lambda: self.core.plan.answer(ticket, looked))
            case actions.ChangeRepositories(ticket, path):
                changed = self.repository_error or (path,)
                self._schedule(lambda: self.core.plan.answer(ticket, changed))
            case actions.ListRepository(ticket, _, is_patient):
                self.patience.append(is_patient)
                names = {name: self.silent_models.get(name) for name in sorted(self.models)}
                listing = self.listing_error or names
                self._schedule(lambda: self.core.plan.answer(ticket, listing))

    def _schedule(self, event: Callable[[], None]) -> None:
        self._events.append(event)

    def _start(self, serial: int, role: str) -> None:
        self._pids += 1
        pid = self._pids
        self.roles[serial] = role
        self.alive.add(serial)
        self._schedule(lambda: self.core.events.process_started(serial, pid, 1000.0))

    def _end(self, serial: int, reason: str, words: str = "", *, had_begun: bool = False) -> None:
        if serial in self.alive:
            self.alive.discard(serial)
            self.core.events.process_ended(serial, because(reason), words, had_begun=had_begun)

    def read(
        self, model: str, override: LoadOverride | None, selection: VersionSelection
    ) -> Blueprint | ReadFailure:
        if self.reader is not None:
            return self.reader.read_model(model, override, selection=selection)
        entry = self.models.get(model)
        if entry is None:
            text = f"failed to poll model '{model}': model not found in any model repository."
            return ReadFailure(because(text))
        if override is not None and override.directory:
            return replace(entry, directory=override.directory)
        return entry

    def _handle_signal(self, serial: int, number: int) -> None:
        if number == signal.SIGKILL:
            self._schedule(lambda: self._end(serial, "killed by SIGKILL"))
        elif self.roles[serial] not in self.stubborn:
            self._schedule(lambda: self._end(serial, "exited with status 0"))

    def _react(self, serial: int, message: Any) -> None:
        role = self.roles[serial]
        if isinstance(message, wire.Sync) and serial not in self.silent:
            self._reply(serial, wire.Synced(message.number))
        elif role == "stub":
            self.react_as_stub(serial, message)
        elif isinstance(message, wire.AskStatistics) and serial not in self.silent:
            document = json.dumps({"model_stats": self.model_stats, "zmqtriton": {}})
            self._reply(serial, wire.CallResult(message.id, 0, "", document))
        elif isinstance(message, wire.Listen) and role == "grpc" and self.is_grpc_up:
            self._reply(
                serial, wire.Opened([wire.ServiceAddress("GRPCInferenceService", "0.0.0.0:1")])
            )
        elif isinstance(message, wire.RemoveRegion) and message.number not in self.used_regions:
            self._reply(serial, wire.RegionReleased(message.number))
        elif isinstance(message, wire.Retire) and role == "broker":
            if not (self.is_busy if message.generation else self.has_sequences):
                self._reply(serial, wire.Drained(message.generation, message.serial))
                self._reply(serial, wire.Settled(message.generation, message.serial))
        elif isinstance(message, wire.PeerDied) and serial not in self.silent:
            self._reply(serial, wire.Settled(1, message.serial))
            self._reply(serial, wire.LeasedSegments(message.serial, []))
        elif isinstance(message, wire.Shutdown) and role not in self.stubborn:
            self._schedule(lambda: self._end(serial, "exited with status 0"))

    def react_as_stub(self, serial: int, message: Any) -> None:
        name = self.stub_names[serial]
        model = name.partition("_0_")[0]
        does = self.stub_behaviours.get(model, LOADS)
        if isinstance(message, wire.Finalize) and name not in self.stubborn:
            self._schedule(lambda: self._end(serial, "exited with status 0"))
        elif does == HANGS:
            return
        elif isinstance(message, wire.LoadModel) and does != LOADS:
            self._reply(serial, wire.LoadFailed(because(does)))
            self._schedule(lambda: self._end(serial, "exited with status 1"))
        elif isinstance(message, wire.LoadModel) and message.auto_complete != wire.CONFIG_IS_FINAL:
            self._reply(serial, wire.ConfigCompleted(message.config))
        elif isinstance(message, wire.LoadModel | wire.Initialize):
            self._reply(serial, wire.ModelLoaded(int(model in self.models_with_is_ready)))

    def _reply(self, serial: int, message: Any) -> None:
        self._schedule(
            lambda: (
                self.core.events.message_received(serial, message) if serial in self.alive else None
            )
        )


class Call:
    """One control call."""

    def __init__(self, world: SupervisorHarness, caller: int, number: int) -> None:
        self._world = world
        self._caller = caller
        self._number = number

    @property
    def answer(self) -> wire.CallResult | None:
        to_caller = [m for s, m in self._world.sent if s == self._caller]
        results = [m for m in to_caller if isinstance(m, wire.CallResult) and m.id == self._number]
        assert len(results) < 2, results
        return results[0] if results else None

    @property
    def result(self) -> Any:
        assert self.answer is not None
        assert self.answer.code == 0, self.answer
        return json.loads(self.answer.result)

    @property
    def error(self) -> tuple[int, str]:
        assert self.answer is not None
        return self.answer.code, self.answer.text
