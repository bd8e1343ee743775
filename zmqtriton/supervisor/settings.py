"""The settings of a server, made once of the options: the core's policy, and processes' settings.

Each role gets only its part: secrets reach the processes that check them, and no other. Does no
I/O.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar, get_type_hints

from zmqtriton.config.parameters import QuotaUse
from zmqtriton.host.capacity import ProcessorUse
from zmqtriton.options import TraceOptions
from zmqtriton.roles import BROKER, GUEST, STUB, TRACER
from zmqtriton_floor.logs import LogOptions
from zmqtriton_floor.settings import codec
from zmqtriton_floor.settings.broker import BrokerSettings
from zmqtriton_floor.settings.frontends import Access, FrontendSettings
from zmqtriton_floor.settings.stub import StubSettings
from zmqtriton_floor.settings.tracing import TracerSettings, TracingSettings

T = TypeVar("T")

#: Folder in the runtime directory.
BYTECODE_FOLDER = "bytecode"


def bytecode_directory(runtime: str, generation: int) -> str:
    """Return the bytecode directory of a generation, which the server removes at its end."""
    return f"{runtime}/{BYTECODE_FOLDER}/{generation}"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings for each kind of process; secrets are kept apart, by the role that gets them."""

    stub: StubSettings
    broker: BrokerSettings
    tracer: TracerSettings
    frontend: FrontendSettings
    #: Secrets by the role that checks clients.
    access: Mapping[str, Access]
    #: The name and all options of an add-on with secret ones, by the role of its process.
    told_alone: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    #: Hash keys of the response cache, by role; empty without a cache.
    cache_secrets: Mapping[str, str] = field(default_factory=dict)
    #: The supervisor's own.
    trace: TraceOptions = field(default_factory=TraceOptions)
    log_file: str = ""
    #: Sockets that this server has, by name.
    local_sockets: tuple[str, ...] = ()
    #: (GPU, fraction of its memory)
    model_load_gpu_limit: tuple[tuple[int, float], ...] = ()

    def with_log(self, log: LogOptions) -> Settings:
        """Return the settings of processes that start after a change of the log."""
        return replace(
            self,
            stub=self.stub._replace(log=log),
            broker=self.broker._replace(log=log),
            tracer=self.tracer._replace(log=log),
            frontend=self.frontend._replace(log=log),
        )

    def with_tracing(self, tracing: TracingSettings) -> Settings:
        """Return the settings of processes that start after a change of trace settings."""
        return replace(self, frontend=self.frontend._replace(tracing=tracing))

    def document(self, role: str) -> str:
        """Return the settings of a process of this role."""
        return codec.encode(self._of(role))

    def _of(self, role: str) -> Any:
        secret = self.cache_secrets.get(role, "")
        if role == STUB:
            return self.stub._replace(memory=self.stub.memory._replace(cache_secret=secret))
        if role == BROKER:
            return self.broker._replace(cache=self.broker.cache._replace(secret=secret))
        if role == TRACER:
            return self.tracer
        frontend = self.frontend
        if role in self.told_alone:
            rows = {**dict(frontend.server.add_ons), **dict([self.told_alone[role]])}
            frontend = frontend._replace(
                server=frontend.server._replace(add_ons=tuple(rows.items()))
            )
        return frontend._replace(
            memory=frontend.memory._replace(cache_secret=secret),
            access=self.access.get(role, Access()),
            # the Python of a guest need not have the packages of steps
            offers=frontend.offers.without("requests.step") if role == GUEST else frontend.offers,
        )


class Start(NamedTuple):
    """The command and the environment of this server, for the one that takes its place."""

    program: Sequence[str] = ()
    #: The options and their values.
    words: Sequence[str] = ()
    directory: str = "/"
    environment: Mapping[str, str] = {}
    pid: int = 0
    #: Reason why no successor can be started with this command; "" if one can.
    obstacle: str = ""
    #: Invocation id of systemd for this run of its service, and systemctl's command to replace it.
    invocation: str = ""
    reload: str = ""
    #: The script that has started the server with the Python in its first line; "" if a Python was
    #: named. Behind a link in its path there may be another environment by now.
    script: str = ""


class ServerInfo(NamedTuple):
    """The facts about the server that processes get at their start, and readings of the machine."""

    directory: str
    settings: Settings
    new_token: Callable[[], bytes]
    #: The share of a GPU's memory that is in use; None if unknown.
    used_gpu_share: Callable[[int], float | None] = lambda gpu: None
    #: The numbers of those that models may use.
    gpus: Sequence[int] = ()
    max_instances: float = math.inf
    #: The command line, for people.
    options: Sequence[dict[str, Any]] = ()
    #: Maximum number of instances that compute in their finalizers at once.
    max_finalizing: float = math.inf
    processor_use: Callable[[int], ProcessorUse] = lambda pid: ProcessorUse()
    #: The last lines of the log: (model or "", after which line, how many).
    log_lines: Callable[[str, int, int], dict[str, Any]] = lambda model, after, limit: {
        "lines": [],
        "last": 0,
        "lost": 0,
    }
    #: Number of lost lines of the log, and the seconds since it was last read.
    log_loss: Callable[[], dict[str, Any]] = lambda: {"lost_lines": 0, "unread_s": 0.0}
    #: The last lines of each process of a model, "" for all, also of those that died.
    process_lines: Callable[[str], list[dict[str, Any]]] = lambda model: []
    #: The bytes of shared memory of each process, by serial number.
    segment_bytes: Callable[[], Mapping[int, int]] = dict
    #: The use of a model's quota, and the means that enforces quotas, in words.
    quota_use: Callable[[str], QuotaUse] = lambda model: QuotaUse()
    quotas_kept_by: Callable[[], str] = str
    #: The processes that read the files of models, for the status.
    readers: Callable[[], Sequence[dict[str, Any]]] = tuple
    #: Repositories and files of models that do not answer.
    silent_places: Callable[[], Sequence[str]] = tuple
    #: Durations of the turns of this process's own loop.
    loop_turns: Callable[[], dict[str, Any]] = dict
    start: Start = Start()
    #: Makes the directory for copies of this store's files, if there is none, and returns it.
    #: Raises ZmqTritonError.
    claim_storage: Callable[[str], str] = str
    #: Seconds that the wall clock was moved by being set since the start.
    clock_step_s: Callable[[], float] = float


@dataclass(frozen=True)
class Policy:
    """The options for loading and stopping."""

    #: none, poll or explicit
    control_mode: str = "none"
    #: names, or "*" alone; read in mode explicit
    startup_models: tuple[str, ...] = ()
    poll_s: float = 0.0
    load_slots: int = 4
    #: Seconds after which a load gives its slot to another one, and continues without it.
    load_slot_timeout_s: float = 30.0
    load_retries: int = 0
    exit_on_error: bool = True
    exit_timeout_s: int = 30
    early_liveness: bool = False
    #: Other servers may have the ports of this one.
    shares_ports: bool = False
    #: True if each gRPC client is asked to leave by itself, when its sequences have ended.
    tells_each_grpc_client: bool = True
    allow_client_shm: bool = False
    #: Interval of the messages to the service manager that the server is alive; None without one.
    watchdog_interval_s: float | None = None
    #: Paths of the repositories, for the answers that show them.
    repositories: tuple[str, ...] = ()
    #: Roles of the frontends, one entry for each process.
    frontend_roles: tuple[str, ...] = ()
    #: Stubs may be forked by a process that has loaded what they need.
    has_fork_server: bool = False
    #: Names of the host policies, which may pin processes to cores.
    host_policies: frozenset[str] = frozenset()
    #: Models are loaded when the server that this one replaces has ended; requests wait for them.
    one_by_one: bool = False
    #: Models are loaded when requests ask for them.
    load_on_demand: bool = False
    #: Options of add-ons by field.
    of_add_ons: Mapping[str, Any] = field(default_factory=dict)

    def options_of(self, kind: type[T]) -> T:
        """Return the values of add-ons' options, in the fields of `kind` with their defaults."""
        fields = get_type_hints(kind).keys() & self.of_add_ons.keys()
        return kind(**{name: self.of_add_ons[name] for name in fields})
