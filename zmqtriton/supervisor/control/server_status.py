"""The answer to `zmqtriton-ctl status`: the server, processes, clients, loops and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zmqtriton.roles import BROKER, BROKERED_ROLES, GUEST
from zmqtriton.supervisor.control.verbs import ControlCall, Verb, Verbs
from zmqtriton.supervisor.features.feature import Features
from zmqtriton.supervisor.helper_processes import HelperOwner
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.models.instance import shorten
from zmqtriton.supervisor.models.model import ServedModel
from zmqtriton.supervisor.models.model_report import lacks_versions, troubles
from zmqtriton.supervisor.server_processes.broker_counts import BrokerCounts
from zmqtriton.supervisor.server_processes.peers import Peers, ServerProcess
from zmqtriton.supervisor.server_processes.shutdown import ShutdownSequence
from zmqtriton.supervisor.settings import ServerInfo, Settings
from zmqtriton_floor import wire
from zmqtriton_floor.endpoints import local_service_path
from zmqtriton_floor.process.loop_turns import BOUNDS_S, LONG_NS
from zmqtriton_floor.reasons import Kind, Reason
from zmqtriton_floor.settings.frontends import Grpc, Http, MetricsService

_CLOSED = "no port is open until each model is loaded or has failed"
#: Maximum number of missing versions that the status line names.
_MAX_NAMES = 3
#: Figures of versions that are compared, which say nothing to anybody else.
_OF_COMPARISONS = ("trial", "unawaited", "executing_ns")
#: Duration of an execution that may hang, as a multiple of the usual one; the alert has the same.
_OVERLONG = 10
_KINDS = ("requests_bytes", "answers_bytes", "requests_refused", "answers_refused")
#: Bytes of held memory that are worth a row.
_SHOWN_BYTES = 1 << 20
#: A guest is a user's process, and may tell anything.
_MAX_VALUES = 1024
_MAX_LETTERS = 128

#: A role, a counter, and the value of its label.
Key = tuple[str, str, str]
_SIZE = len(BOUNDS_S) + 1
_TIMES = ("cpu_s", "stood_s", "waited_s", "locked_s", "at_s")
_MAX_TURN_LETTERS = 1000


class ServerStatus:
    """Describes the server and all its processes."""

    def __init__(
        self,
        server: ServerInfo,
        models: Mapping[str, ServedModel],
        generations: Mapping[int, Generation],
        *,
        peers: Peers,
        helpers: Sequence[HelperOwner],
        stopping: ShutdownSequence,
        counts: BrokerCounts,
        features: Features,
        pid: int,
    ) -> None:
        self._server = server
        self._models = models
        self._generations = generations
        self._peers = peers
        self._helpers = helpers
        self._stopping = stopping
        self._counts = counts
        self._features = features
        self._pid = pid
        #: When each process was started, by serial number, on the wall clock; 0 is the supervisor.
        self._started_s: dict[int, float] = {}
        #: Pids of processes by serial number.
        self._pids: dict[int, int] = {}
        self._malformed = 0
        self._clients = Clients()
        self._turns = LoopTurnsTable()

    @property
    def verbs(self) -> Verbs:
        return {
            "status": Verb(lambda call: self._status()),
            # of the supervisor alone, whatever the broker does
            "identity": Verb(lambda call: self._identity()),
            # by which a frontend tells of its clients
            "clients": Verb(lambda call: self._clients.take(call.caller, call.arguments)),
            # by which it tells of its loop
            "turns": Verb(self._take_turns),
        }

    def started(self, started_s: float) -> None:
        """Record the start of the supervisor itself."""
        self._started_s[0] = started_s

    def process_started(self, serial: int, pid: int, started_s: float) -> None:
        self._started_s[serial] = started_s
        self._pids[serial] = pid

    def process_ended(self, serial: int) -> None:
        self._started_s.pop(serial, None)
        self._pids.pop(serial, None)
        self._clients.forget(serial)

    def peer_ended(self, serial: int) -> None:
        """Forget a dead process that was neither the supervisor nor a stub."""
        self._clients.forget(serial)
        self._turns.forget(serial)

    def _take_turns(self, call: ControlCall) -> None:
        peer = self._peers.find_peer(call.caller)
        if peer is not None and peer.role != GUEST:
            self._turns.take(peer.serial, peer.role, call.arguments)

    def messages_malformed(self, messages: int) -> None:
        """Count dropped messages: malformed ones, or ones that their sender may not send."""
        self._malformed += messages

    def _identity(self) -> dict[str, Any]:
        server = describe_server(self._server.settings, self._server.directory, self.summary())
        started_s = self._started_s[0] + self._server.clock_step_s()
        return {**server, "pid": self._pid, "started_s": started_s}

    async def _status(self) -> dict[str, Any]:
        report = await self._counts.request()
        unconnected, in_flight = report.pop("unconnected"), report.pop("in_flight")
        holders = report.pop("held")
        ages_ns = report.pop("execution_ages_ns")
        self._take_own_turns(report.pop("turns"))
        counts = report["counts"] or ()
        document = self._describe(counts)
        usual_ns = {}
        for row in counts:
            usual_ns[row["model"], row["version"]] = row.get("usual_execution_ns", 0)
            for name in _OF_COMPARISONS:
                row.pop(name, None)
        for process in document["processes"]:
            serial = process.get("serial", 0)
            never_connects = process["role"] not in BROKERED_ROLES
            process["is_connected"] = never_connects or serial not in unconnected
            if process["role"] == "stub":
                process["in_flight"] = in_flight.get(str(serial), 0)
                age_ns = ages_ns.get(str(serial), 0)
                of_others_ns = usual_ns.get((process["model"], process["version"]), 0)
                process["executing_s"] = round(age_ns / 1e9, 3)
                process["is_overlong"] = 0 < _OVERLONG * of_others_ns < age_ns
        document["held"] = describe_holders(holders, document["processes"])
        return {**document, **report}

    def _take_own_turns(self, of_broker: dict[str, Any]) -> None:
        """Record the turns of the processes that do not call the supervisor."""
        self._turns.take(0, "supervisor", self._server.loop_turns())
        for peer in self._peers.all():
            if peer.role == BROKER:
                self._turns.take(peer.serial, BROKER, of_broker)

    def processes(self) -> list[tuple[int, str, int, int]]:
        """Return the pid of each process, its model, version and number of instances.

        Processes without a model have "" and 0.
        """
        pids = [self._pid, *(peer.pid for peer in self._peers.all())]
        rows = [(pid, "", 0, 0) for pid in (*pids, *(r["pid"] for r in self._server.readers()))]
        for generation in self._generations.values():
            held = Counter(instance.pid for instance in generation.instances)
            if generation.template is not None:
                held[self._pids.get(generation.template.serial, 0)] += 0
            of_model = generation.blueprint.name, generation.version
            rows += [(pid, *of_model, count) for pid, count in held.items()]
        return [row for row in rows if row[0]]

    def loads(self) -> dict[str, str]:
        """Return the phase of each running load, in words, by model."""
        models = self._models.values()
        return {model.name: model.load_phase for model in models if model.is_loading}

    def summary(self) -> str:
        """Return a line that sums up the status for people."""
        models = self._models.values()
        infos = [news for model in models for news in model.version_infos()]
        expected = [news for news in infos if news.version and not _may_be_missing(news)]
        missing = [f"{n.model} version {n.version}" for n in expected if not n.ready_instances]
        without_versions = [model.name for model in models if lacks_versions(model)]
        missing += without_versions
        total = len(expected) + len(without_versions)
        ready = f"{total - len(missing)} of {total} model versions are ready"
        if missing:
            more = " and others" if len(missing) > _MAX_NAMES else ""
            ready += f", not {', '.join(missing[:_MAX_NAMES])}{more}"
        if self._stopping.has_begun:
            return f"stopping; {ready}"
        troubles = [row["text"] for row in self._peers.troubles()]
        troubles += [f"{path} does not answer" for path in self._server.silent_places()]
        closed = [] if self._peers.opening.has_begun else [_CLOSED]
        return "; ".join([*self._features.phases, ready, *closed, *troubles])

    def _describe_templates(self) -> list[dict[str, Any]]:
        return [
            {
                "role": "template",
                "serial": one.serial,
                "pid": self._pids[one.serial],
                "started_s": self._started_s[one.serial],
                "model": generation.blueprint.name,
                "version": generation.version,
                "instances": generation.blueprint.instances,
                **_last_reason(None),
            }
            for generation in self._generations.values()
            if (one := generation.template) is not None and one.serial in self._pids
        ]

    def _describe(self, counts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        phase = self._stopping.phase.value
        processes = describe_processes(
            self._pid, self._started_s, phase, self._peers.all(), self._generations.values()
        )
        processes += self._describe_templates()
        for helper in self._helpers:
            processes += helper.describe_processes()
        processes += self._server.readers()
        preparations = [row for helper in self._helpers for row in helper.describe_preparations()]
        held, step_s = {**self._server.segment_bytes()}, self._server.clock_step_s()
        for process in processes:
            if process["started_s"]:
                process["started_s"] += step_s
            serial = process.get("serial", 0)
            process["segment_bytes"] = held.pop(serial, 0)
            process.update(self._clients.describe_process(serial))
            if process["role"] != "stub" and (serial or process["role"] == "supervisor"):
                process.update(self._turns.describe_process(serial))
        server = self._server
        document: dict[str, Any] = {
            "server": describe_server(server.settings, server.directory, self.summary()),
            "is_listening": self._peers.opening.has_begun,
            "processes": processes,
            # of processes that have ended, which others still read
            "ended_segment_bytes": sum(held.values()),
            "environments": preparations,
            "malformed": self._malformed,
            "log": server.log_loss(),
            "clients": self._clients.describe(),
            "turns": self._turns.describe(),
            "slow_loops": self._turns.slow_loops(
                {0: "supervisor", **{peer.serial: peer.role for peer in self._peers.all()}}
            ),
            "loads": load_seconds(self._generations.values()),
            "troubles": [row for model in self._models.values() for row in troubles(model)],
            "process_troubles": self._peers.troubles(),
            "silent_places": server.silent_places(),
        }
        return document | self._features.describe(counts)


def describe_holders(
    holders: Iterable[tuple[int, int, int]], processes: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the memory of models that other processes hold, to read it once or again.

    `holders` has the serial numbers of holder and owner, and the bytes.
    """
    by_serial = {row.get("serial", 0): row for row in processes}
    rows = [(by_serial.get(holder), by_serial.get(owner), size) for holder, owner, size in holders]
    return [
        {
            "role": holder["role"],
            "pid": holder["pid"],
            "model": owner["model"],
            "version": owner["version"],
            "bytes": size,
        }
        for holder, owner, size in rows
        if holder and owner and owner["role"] == "stub" and size >= _SHOWN_BYTES
    ]


def _may_be_missing(news: wire.VersionInfo) -> bool:
    """True if the server is ready without the version."""
    is_unloaded = news.reason is not None and news.reason.kind == Kind.UNLOADED
    return is_unloaded or bool(news.is_on_demand and not news.generation)


def describe_server(settings: Settings, directory: str, ready: str) -> dict[str, Any]:
    """Describe the server, for people who have several servers; `ready` is its state in words."""
    frontend = settings.frontend
    services: dict[str, Http | Grpc | MetricsService]
    services = {"http": frontend.http, "grpc": frontend.grpc, "metrics": frontend.metrics_service}
    addresses = {
        name: f"[{host}]:{service.port}" if ":" in host else f"{host}:{service.port}"
        for name, service in services.items()
        for host in [service.address]
        if service.is_served
    }
    addresses |= {name: local_service_path(directory, name) for name in settings.local_sockets}
    return {
        "id": frontend.server.id,
        "version": frontend.server.zmqtriton_version,
        "commit": frontend.server.commit,
        "directory": directory,
        "addresses": addresses,
        "ready": ready,
    }


def load_seconds(generations: Iterable[Generation]) -> dict[str, dict[str, float]]:
    """Return the load time of each version in seconds, by model and version."""
    times: dict[str, dict[str, float]] = {}
    for generation in generations:
        if generation.is_serving:
            of_model = times.setdefault(generation.blueprint.name, {})
            of_model[str(generation.version)] = generation.load_s
    return times


def describe_processes(
    pid: int,
    started_s: Mapping[int, float],
    phase: str,
    peers: Iterable[ServerProcess],
    generations: Iterable[Generation],
) -> list[dict[str, Any]]:
    """Describe the processes.

    `started_s` has wall clock times by serial number; 0 is the supervisor's.
    """
    processes: list[dict[str, Any]] = [
        {"role": "supervisor", "pid": pid, "started_s": started_s.get(0, 0.0), "state": phase}
    ]
    processes += [
        {
            "role": peer.role,
            "serial": peer.serial,
            "pid": peer.pid,
            "started_s": peer.started_s,
            "restarts": peer.restarts,
            **_last_reason(peer.last_death_reason),
        }
        for peer in peers
    ]
    return processes + [
        {
            "role": "stub",
            "serial": instance.serial,
            "pid": instance.pid,
            "started_s": started_s.get(instance.serial, 0.0) if instance.pid else 0.0,
            "model": generation.blueprint.name,
            "version": generation.version,
            "generation": generation.number,
            "instance": instance.name,
            "kind": instance.slot.kind,
            "device": instance.slot.device,
            "state": instance.state.value,
            "restarts": instance.restarts,
            **_last_reason(instance.death_reason),
            "last_pid": instance.last_pid,
            "growth": instance.growth._asdict() if instance.growth.executions else None,
            "mismatches": instance.mismatches,
            "retry_after_s": instance.retry_after_s if instance.is_given_up else 0.0,
        }
        for generation in generations
        for instance in generation.instances
    ]


def _last_reason(reason: Reason | None) -> dict[str, Any]:
    """Return the reason why a process ended, for people and for programs."""
    if reason is None:
        return {"last_reason": ""}
    return {"last_reason": shorten(reason.text), "why": reason.document()}


class Clients:
    """Frontends' figures about clients: memory, connections, and counters that outlive them."""

    def __init__(self) -> None:
        #: Bytes of clients by kind, for each living frontend by its serial.
        self._memory: dict[int, dict[str, int]] = {}
        self._connections: dict[int, int] = {}
        self._counts: dict[int, dict[Key, int]] = {}
        #: Counters of all frontends together, those that have ended included.
        self._totals: dict[Key, int] = {}

    def take(self, serial: int, figures: Mapping[str, Any]) -> None:
        """Record the figures of a process; values of other types do not count."""
        memory = _mapping(figures.get("memory"))
        if memory:
            self._memory[serial] = {kind: _number(memory.get(kind)) for kind in _KINDS}
        self._connections[serial] = _number(figures.get("connections"))
        before, now = self._counts.get(serial, {}), _read_counts(figures)
        for key, count in now.items():
            grown = count - before.get(key, 0)
            if grown > 0 and (key in self._totals or len(self._totals) < _MAX_VALUES):
                self._totals[key] = self._totals.get(key, 0) + grown
        self._counts[serial] = now

    def forget(self, serial: int) -> None:
        for figures in (self._memory, self._connections, self._counts):
            figures.pop(serial, None)

    def describe_process(self, serial: int) -> dict[str, Any]:
        """Return the status of a process; empty if it has reported nothing."""
        described: dict[str, Any] = {}
        if serial in self._memory:
            described["client_memory"] = self._memory[serial]
        if serial in self._connections:
            described["connections"] = self._connections[serial]
        return described

    def describe(self) -> list[dict[str, Any]]:
        """Return the counters of all processes together."""
        return [
            {"role": role, "counter": counter, "label": label, "count": count}
            for (role, counter, label), count in self._totals.items()
        ]


def _read_counts(figures: Mapping[str, Any]) -> dict[Key, int]:
    role = str(figures.get("role", ""))[:_MAX_LETTERS]
    return {
        (role, str(counter)[:_MAX_LETTERS], str(label)[:_MAX_LETTERS]): _number(count)
        for counter, values in _mapping(figures.get("counts")).items()
        for label, count in _mapping(values).items()
    }


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> int:
    return value if type(value) is int else 0


class LoopTurnsTable:
    """The turns of the loops of all processes: the longest of each, and a histogram of times.

    Each process measures its own turns and reports them; the counts outlive the process.
    """

    def __init__(self) -> None:
        #: Last reported number of turns by duration, for each process by its serial.
        self._counts: dict[int, Sequence[int]] = {}
        self._sums_s: dict[int, float] = {}
        self._longest: dict[int, dict[str, Any]] = {}
        #: Number of turns by duration and their seconds, by role; ended processes are included.
        self._totals: dict[str, tuple[list[int], float]] = {}

    def take(self, serial: int, role: str, report: Mapping[str, Any]) -> None:
        """Record the report of a process; a report of another form does not count."""
        counts: Any = report.get("counts")
        sum_s: Any = report.get("sum_s")
        if type(counts) is not list or len(counts) != _SIZE:
            return
        if not all(map(_is_number, (*counts, sum_s))):
            return
        longest = report.get("longest")
        before = self._counts.get(serial, (0,) * _SIZE)
        totals, total_s = self._totals.get(role, ([0] * _SIZE, 0.0))
        grown_s = max(0.0, sum_s - self._sums_s.get(serial, 0.0))
        grown = [max(0, now - then) for now, then in zip(counts, before, strict=True)]
        self._totals[role] = [*map(sum, zip(totals, grown, strict=True))], total_s + grown_s
        self._counts[serial], self._sums_s[serial] = counts, sum_s
        if isinstance(longest, dict) and all(_is_number(longest.get(name)) for name in _TIMES):
            place = str(longest.get("place"))[:_MAX_TURN_LETTERS]
            self._longest[serial] = {**{name: longest[name] for name in _TIMES}, "place": place}
        else:
            self._longest.pop(serial, None)

    def forget(self, serial: int) -> None:
        for figures in (self._counts, self._sums_s, self._longest):
            figures.pop(serial, None)

    def describe_process(self, serial: int) -> dict[str, Any]:
        """Return the status of a process; empty if it has reported nothing."""
        return {"longest_turn": self._longest.get(serial)} if serial in self._counts else {}

    def slow_loops(self, names: Mapping[int, str]) -> list[dict[str, str]]:
        """Return a line for people about each of these processes that has had a long turn."""
        return [
            {"resource": "loop", "text": _slowness(name, self._longest[serial])}
            for serial, name in names.items()
            if serial in self._longest and _took_s(self._longest[serial]) > LONG_NS / 1e9
        ]

    def describe(self) -> list[dict[str, Any]]:
        """Return the counts of all processes together, by role."""
        return [
            {"role": role, "counts": counts, "sum_s": round(sum_s, 3)}
            for role, (counts, sum_s) in self._totals.items()
        ]


def _took_s(turn: Mapping[str, Any]) -> float:
    return float(turn["cpu_s"] + turn["stood_s"] + turn["locked_s"])


def _slowness(name: str, turn: Mapping[str, Any]) -> str:
    place = str(turn["place"]).partition(" < ")[0]
    of_cpu = f"{turn['cpu_s']:.2f} s of CPU, {turn['stood_s']:.2f} s in calls"
    of_cpu += f", {turn['locked_s']:.2f} s for a lock" if turn["locked_s"] else ""
    text = f"others have lately waited {_took_s(turn):.2f} s for the process '{name}' ({of_cpu})"
    return f"{text}: it was in {place}" if place else text


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)
