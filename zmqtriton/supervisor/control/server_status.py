"""The answer to `zmqtriton-ctl status`: the server, its processes, and the broker's counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zmqtriton.supervisor.control.clients import Clients
from zmqtriton.supervisor.control.loop_turns import LoopTurnsTable
from zmqtriton.supervisor.control.status import describe_processes, describe_server, load_seconds
from zmqtriton.supervisor.control.verbs import ControlCall, Verb, Verbs, at_once
from zmqtriton.supervisor.features.feature import Features
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.models.model import Model
from zmqtriton.supervisor.models.model_report import troubles
from zmqtriton.supervisor.server_processes.broker_counts import BrokerCounts
from zmqtriton.supervisor.server_processes.helper_processes import HelperOwner
from zmqtriton.supervisor.server_processes.introductions import ServerInfo
from zmqtriton.supervisor.server_processes.peers import Peers
from zmqtriton.supervisor.server_processes.roles import BROKER, BROKERED_ROLES, GUEST
from zmqtriton.supervisor.server_processes.shutdown import ShutdownSequence
from zmqtriton_floor import wire
from zmqtriton_floor.reasons import Kind

#: The line for people names so many versions.
_MAX_NAMES = 3
#: Figures of versions that are compared, which say nothing to anybody else.
_OF_COMPARISONS = ("trial", "unawaited", "executing_ns")
#: An execution that lasts so many times as long as usual may hang; the alert has the same factor.
_OVERLONG = 10


class ServerStatus:
    """Describes the server and all its processes."""

    def __init__(
        self,
        server: ServerInfo,
        models: Mapping[str, Model],
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
        self._malformed = 0
        self._clients = Clients()
        self._turns = LoopTurnsTable()

    @property
    def verbs(self) -> Verbs:
        return {
            "status": Verb(lambda call: self._request(call.answer)),
            # of the supervisor alone, whatever the broker does
            "identity": Verb(at_once(lambda _: self._identity())),
            # by which a frontend tells of its clients
            "clients": Verb(self._take_clients),
            # by which it tells of its loop
            "turns": Verb(self._take_turns),
        }

    def started(self, started_s: float) -> None:
        """The supervisor itself has been started."""
        self._started_s[0] = started_s

    def process_started(self, serial: int, started_s: float) -> None:
        self._started_s[serial] = started_s

    def process_ended(self, serial: int) -> None:
        self._started_s.pop(serial, None)
        self._clients.forget(serial)

    def peer_ended(self, serial: int) -> None:
        """A process that is neither the supervisor nor a stub has ended."""
        self._clients.forget(serial)
        self._turns.forget(serial)

    def _take_clients(self, call: ControlCall) -> None:
        self._clients.take(call.caller, call.arguments)
        call.answer(None)

    def _take_turns(self, call: ControlCall) -> None:
        peer = self._peers.find_peer(call.caller)
        if peer is not None and peer.role != GUEST:
            self._turns.take(peer.serial, peer.role, call.arguments)
        call.answer(None)

    def messages_malformed(self, messages: int) -> None:
        """Messages were dropped: they did not decode, or made no sense from where they came."""
        self._malformed += messages

    def _identity(self) -> dict[str, Any]:
        server = describe_server(self._server.settings, self._server.directory, self.summary())
        return {**server, "pid": self._pid, "started_s": self._started_s[0]}

    def _request(self, done: Callable[[dict[str, Any]], None]) -> None:
        """`done` gets the status once the broker has sent its counts."""

        def describe(report: dict[str, Any]) -> None:
            unconnected, in_flight = report.pop("unconnected"), report.pop("in_flight")
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
            done({**document, **report})

        self._counts.request(describe)

    def _take_own_turns(self, of_broker: dict[str, Any]) -> None:
        """Take the turns of those that need not call the supervisor."""
        self._turns.take(0, "supervisor", self._server.loop_turns())
        for peer in self._peers.all():
            if peer.role == BROKER:
                self._turns.take(peer.serial, BROKER, of_broker)

    def processes(self) -> list[tuple[int, str, int]]:
        """Return the pid, the model and the version of each process; "" and 0 if it has none."""
        rows = [(self._pid, "", 0), *((peer.pid, "", 0) for peer in self._peers.all())]
        for generation in self._generations.values():
            of_model = generation.blueprint.name, generation.version
            rows += [(instance.pid, *of_model) for instance in generation.instances]
        rows += [(reader["pid"], "", 0) for reader in self._server.readers()]
        return [row for row in rows if row[0]]

    def loads(self) -> dict[str, str]:
        """Return the phase of each running load, in words, by model."""
        models = self._models.values()
        return {model.name: model.loads.phase for model in models if model.loads.is_loading}

    def summary(self) -> str:
        """One line for people."""
        infos = [news for model in self._models.values() for news in model.version_infos()]
        expected = [news for news in infos if news.version and not _may_be_missing(news)]
        missing = [f"{n.model} version {n.version}" for n in expected if not n.ready_instances]
        total = len(expected)
        ready = f"{total - len(missing)} of {total} model versions are ready"
        if missing:
            more = " and others" if len(missing) > _MAX_NAMES else ""
            ready += f", not {', '.join(missing[:_MAX_NAMES])}{more}"
        if self._stopping.has_begun:
            return f"stopping; {ready}"
        return "; ".join([*self._features.phases, ready])

    def _describe(self, counts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        phase = self._stopping.phase.value
        processes = describe_processes(
            self._pid, self._started_s, phase, self._peers.all(), self._generations.values()
        )
        for helper in self._helpers:
            processes += helper.describe_processes()
        processes += self._server.readers()
        preparations = [row for helper in self._helpers for row in helper.describe_preparations()]
        held = self._server.segment_bytes()
        for process in processes:
            serial = process.get("serial", 0)
            process["segment_bytes"] = held.get(serial, 0)
            process.update(self._clients.describe_process(serial))
            if process["role"] != "stub" and (serial or process["role"] == "supervisor"):
                process.update(self._turns.describe_process(serial))
        server = self._server
        document: dict[str, Any] = {
            "server": describe_server(server.settings, server.directory, self.summary()),
            "processes": processes,
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
        }
        return document | self._features.describe(counts)


def _may_be_missing(news: wire.VersionInfo) -> bool:
    """True if the server is ready without the version."""
    is_unloaded = news.reason is not None and news.reason.kind == Kind.UNLOADED
    return is_unloaded or bool(news.is_on_demand and not news.generation)
