"""The answer to `zmqtriton-ctl status`: the server, processes and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zmqtriton.roles import BROKERED_ROLES
from zmqtriton.supervisor.control.verbs import Verb, Verbs
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
from zmqtriton_floor.reasons import Kind, Reason
from zmqtriton_floor.settings.frontends import Grpc, Http, MetricsService

_CLOSED = "no port is open until each model is loaded or has failed"
#: Maximum number of missing versions that the status line names.
_MAX_NAMES = 3
#: Figures of versions that are compared, which say nothing to anybody else.
_OF_COMPARISONS = ("trial", "unawaited", "executing_ns")
#: Duration of an execution that may hang, as a multiple of the usual one; the alert has the same.
_OVERLONG = 10
#: Bytes of held memory that are worth a row.
_SHOWN_BYTES = 1 << 20


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
        #: Pid of each process, and its start on the wall clock, by serial; 0 is the supervisor.
        self._begun: dict[int, tuple[int, float]] = {}
        self._malformed = 0

    @property
    def verbs(self) -> Verbs:
        return {
            "status": Verb(lambda call: self._status()),
            # of the supervisor alone, whatever the broker does
            "identity": Verb(lambda call: self._identity()),
        }

    def started(self, started_s: float) -> None:
        """Record the start of the supervisor itself."""
        self._begun[0] = self._pid, started_s

    def process_started(self, serial: int, pid: int, started_s: float) -> None:
        self._begun[serial] = pid, started_s

    def process_ended(self, serial: int) -> None:
        self._begun.pop(serial, None)

    def messages_malformed(self, messages: int) -> None:
        """Count dropped messages: malformed ones, or ones that their sender may not send."""
        self._malformed += messages

    def _identity(self) -> dict[str, Any]:
        server = describe_server(self._server.settings, self._server.directory, self.summary())
        started_s = self._begun[0][1] + self._server.clock_step_s()
        return {**server, "pid": self._pid, "started_s": started_s}

    async def _status(self) -> dict[str, Any]:
        report = await self._counts.request()
        unconnected, in_flight = report.pop("unconnected"), report.pop("in_flight")
        ages_ns = report.pop("execution_ages_ns")
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
        document["held"] = describe_holders(report.pop("held"), document["processes"])
        return {**document, **report}

    def processes(self) -> list[tuple[int, str, int, int]]:
        """Return the pid of each process, its model, version and number of instances.

        Processes without a model have "" and 0.
        """
        pids = [self._pid, *(peer.pid for peer in self._peers.all())]
        rows = [(pid, "", 0, 0) for pid in (*pids, *(r["pid"] for r in self._server.readers()))]
        for generation in self._generations.values():
            held = Counter(instance.pid for instance in generation.instances)
            for template in generation.templates:
                held[self._begun.get(template.serial, (0,))[0]] += 0
            of_model = generation.blueprint.name, generation.version
            rows += [(pid, *of_model, count) for pid, count in held.items()]
        return [row for row in rows if row[0]]

    def loads(self) -> dict[str, str]:
        """Return the phase of each running load, in words, by model."""
        return {model.name: model.load_phase for model in self._models.values() if model.is_loading}

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
                "pid": self._begun[one.serial][0],
                "started_s": self._begun[one.serial][1],
                "model": generation.blueprint.name,
                "version": generation.version,
                "instances": generation.blueprint.instances,
                **_last_reason(None),
            }
            for generation in self._generations.values()
            for one in generation.templates
            if one.serial in self._begun
        ]

    def _describe(self, counts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        of_features = self._features.describe(counts)
        processes = describe_processes(
            self._begun, self._stopping.phase.value, self._peers.all(), self._generations.values()
        )
        processes += self._describe_templates()
        for helper in self._helpers:
            processes += helper.describe_processes()
        processes += self._server.readers()
        held, step_s = {**self._server.segment_bytes()}, self._server.clock_step_s()
        for process in processes:
            if process["started_s"]:
                process["started_s"] += step_s
            process["segment_bytes"] = held.pop(process.get("serial", 0), 0)
            process.update(self._features.describe_process(process))
        server = self._server
        document: dict[str, Any] = {
            "server": describe_server(server.settings, server.directory, self.summary()),
            "is_listening": self._peers.opening.has_begun,
            "processes": processes,
            # of processes that have ended, which others still read
            "ended_segment_bytes": sum(held.values()),
            "environments": [
                row for helper in self._helpers for row in helper.describe_preparations()
            ],
            "malformed": self._malformed,
            "log": server.log_loss(),
            "loads": load_seconds(self._generations.values()),
            "kept": kept_of(self._generations.values()),
            "troubles": [row for model in self._models.values() for row in troubles(model)],
            "process_troubles": self._peers.troubles(),
            "silent_places": server.silent_places(),
        }
        return document | of_features


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
    services: dict[str, Http | Grpc | MetricsService] = {
        "http": frontend.http,
        "grpc": frontend.grpc,
        "metrics": frontend.metrics_service,
    }
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


def kept_of(generations: Iterable[Generation]) -> list[dict[str, Any]]:
    """Return a row for each version that was loaded over another: its report on kept objects."""
    return [
        {
            "model": each.blueprint.name,
            "version": each.version,
            "is_kept": bool(each.kept.is_kept),
            "text": each.kept.text,
        }
        for each in generations
        if each.is_serving and each.kept is not None
    ]


def describe_processes(
    begun: Mapping[int, tuple[int, float]],
    phase: str,
    peers: Iterable[ServerProcess],
    generations: Iterable[Generation],
) -> list[dict[str, Any]]:
    """Describe the processes.

    `begun` has pids and wall clock times by serial number; 0 is the supervisor.
    """
    pid, started_s = begun[0]
    processes: list[dict[str, Any]] = [
        {"role": "supervisor", "pid": pid, "started_s": started_s, "state": phase}
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
            "started_s": begun.get(instance.serial, (0, 0.0))[1],
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
