"""The answer to `zmqtriton-ctl status`: the server, its processes, and the broker's counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from zmqtriton.supervisor.control.repositories import RepositoryRegistry
from zmqtriton.supervisor.control.status import describe_processes, describe_server, load_seconds
from zmqtriton.supervisor.features.canaries.registry import CanaryRegistry
from zmqtriton.supervisor.features.on_demand.on_demand import OnDemandLoader
from zmqtriton.supervisor.features.quotas.quota_report import QuotaUse, describe_quotas
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.models.model import Model
from zmqtriton.supervisor.server_processes.broker_counts import BrokerCounts
from zmqtriton.supervisor.server_processes.introductions import ServerInfo
from zmqtriton.supervisor.server_processes.peers import Peers
from zmqtriton.supervisor.server_processes.roles import BROKERED_ROLES
from zmqtriton.supervisor.server_processes.shutdown import ShutdownSequence

#: The call by which a frontend tells what clients make it hold.
CLIENT_MEMORY = "client_memory"
_KINDS = ("requests_bytes", "answers_bytes", "requests_refused", "answers_refused")


class HelperOwner(Protocol):
    """Owns processes that do one task and end."""

    def describe(self) -> list[dict[str, Any]]: ...

    def describe_preparations(self) -> list[dict[str, Any]]: ...


class ServerStatus:
    """Describes the server and all its processes."""

    def __init__(
        self,
        server: ServerInfo,
        models: Mapping[str, Model],
        generations: Mapping[int, Generation],
        *,
        peers: Peers,
        helpers: tuple[HelperOwner, ...],
        stopping: ShutdownSequence,
        counts: BrokerCounts,
        loader: OnDemandLoader,
        repositories: RepositoryRegistry,
        canaries: CanaryRegistry,
        pid: int,
    ) -> None:
        self._server = server
        self._models = models
        self._generations = generations
        self._peers = peers
        self._helpers = helpers
        self._stopping = stopping
        self._counts = counts
        self._loader = loader
        self._repositories = repositories
        self._canaries = canaries
        self._pid = pid
        #: When each process was started, by serial number, on the wall clock; 0 is the supervisor.
        self._started_s: dict[int, float] = {}
        self._malformed = 0
        #: What clients make frontends hold, by serial number.
        self._client_memory: dict[int, dict[str, int]] = {}
        #: The bytes of shared memory of each process, by serial number.
        self.segment_bytes: Callable[[], Mapping[int, int]] = dict
        #: What a model has of its quota, and what keeps processes to theirs, in words.
        self.quota_use: Callable[[str], QuotaUse] = lambda model: QuotaUse()
        self.quotas_kept_by = ""
        #: The drains.
        self.drains: Callable[[], list[dict[str, Any]]] = list

    def started(self, started_s: float) -> None:
        """The supervisor itself has been started."""
        self._started_s[0] = started_s

    def process_started(self, serial: int, started_s: float) -> None:
        self._started_s[serial] = started_s

    def process_ended(self, serial: int) -> None:
        self._started_s.pop(serial, None)
        self._client_memory.pop(serial, None)

    def client_memory_reported(self, serial: int, figures: Mapping[str, Any]) -> None:
        """Take what a frontend says of its clients; what is no number counts as none."""
        found = {kind: figures.get(kind) for kind in _KINDS}
        self._client_memory[serial] = {
            kind: value if type(value) is int else 0 for kind, value in found.items()
        }

    def messages_malformed(self, messages: int) -> None:
        """Messages were dropped: they did not decode, or made no sense from where they came."""
        self._malformed += messages

    def request(self, done: Callable[[dict[str, Any]], None]) -> None:
        """`done` gets the status once the broker has sent its counts."""

        def describe(found: dict[str, Any]) -> None:
            unconnected, in_flight = found.pop("unconnected"), found.pop("in_flight")
            document = self._describe()
            for process in document["processes"]:
                serial = process.get("serial", 0)
                never_connects = process["role"] not in BROKERED_ROLES
                process["is_connected"] = never_connects or serial not in unconnected
                if process["role"] == "stub":
                    process["in_flight"] = in_flight.get(str(serial), 0)
            done({**document, **self._describe_quotas(found["counts"] or ()), **found})

        self._counts.request(describe)

    def processes(self) -> list[tuple[int, str, int]]:
        """Return the pid, the model and the version of each process; "" and 0 if it has none."""
        found = [(self._pid, "", 0), *((peer.pid, "", 0) for peer in self._peers.all())]
        for generation in self._generations.values():
            of_model = generation.blueprint.name, generation.version
            found += [(instance.pid, *of_model) for instance in generation.instances]
        return [row for row in found if row[0]]

    def loads(self) -> dict[str, str]:
        """Return the phase of each running load, in words, by model."""
        models = self._models.values()
        return {model.name: model.loads.phase for model in models if model.loads.is_loading}

    def summary(self) -> str:
        """One line for people."""
        found = [news for model in self._models.values() for news in model.version_infos()]
        states = [news.state for news in found if news.version]
        ready = f"{states.count('READY')} of {len(states)} model versions are ready"
        if self._stopping.has_begun:
            return f"stopping; {ready}"
        is_draining = any("model" not in drain for drain in self.drains())
        return f"draining; {ready}" if is_draining else ready

    def _describe_quotas(self, counts: Iterable[dict[str, Any]]) -> dict[str, Any]:
        """Describe the limits of models; empty if there are none."""
        quotas = [generation.blueprint.quota for generation in self._generations.values()]
        rows = describe_quotas(quotas, self.quota_use, counts)
        return {"quotas": rows, "quotas_kept_by": self.quotas_kept_by} if rows else {}

    def _describe(self) -> dict[str, Any]:
        phase = self._stopping.phase.value
        processes = describe_processes(
            self._pid, self._started_s, phase, self._peers.all(), self._generations.values()
        )
        for helper in self._helpers:
            processes += helper.describe()
        preparations = [row for helper in self._helpers for row in helper.describe_preparations()]
        held = self.segment_bytes()
        for process in processes:
            serial = process.get("serial", 0)
            process["segment_bytes"] = held.get(serial, 0)
            if serial in self._client_memory:
                process["client_memory"] = self._client_memory[serial]
        server = self._server
        return {
            "server": describe_server(server.settings_json, server.directory, self.summary()),
            "processes": processes,
            "environments": preparations,
            "malformed": self._malformed,
            "repositories": self._repositories.paths,
            **self._loader.describe(),
            "loads": load_seconds(self._generations.values()),
            "canaries": {"models": self._canaries.describe(), **self._canaries.totals.describe()},
            "drains": self.drains(),
        }
