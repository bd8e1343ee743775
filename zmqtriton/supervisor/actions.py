"""What the core decides: imperatives for the service, which performs them in this order.

Nothing here has a result; what comes of an action returns to the core as an event.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from zmqtriton.environments.demand import Environment, EnvironmentSpec
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.logs import LogOptions

#: What comes of ListRepository: names, each with the problem that all can see, or "".
RepositoryListing = dict[str, str] | ZmqTritonError


class Spawn(NamedTuple):
    """Start a process that knows its serial number from its lifeline alone."""

    serial: int
    role: str


class SpawnStub(NamedTuple):
    """The same for a model's instance, in the model's environment."""

    serial: int
    environment: Environment
    model: str
    instance: str
    host_policy: str = ""


class PrepareEnvironment(NamedTuple):
    """Start a process that says in an Answer what there is for this model now."""

    serial: int
    model: str
    demand: EnvironmentSpec


class ConfigureLogging(NamedTuple):
    """Of the supervisor's own records."""

    options: LogOptions


class Send(NamedTuple):
    """A message over the lifeline of a process, or to a caller on the control socket."""

    serial: int
    message: Any


class Signal(NamedTuple):
    """A signal to the process; with `group`, to everything that it started too."""

    serial: int
    number: int
    group: bool = False


class LoadOverride(NamedTuple):
    """What a load brings along."""

    #: JSON of a configuration that stands in for the file.
    config: str
    #: Stands in for the model's directory; "": that stays.
    directory: str = ""


class LocalCopy(NamedTuple):
    """A model of an object store, as it is on this machine."""

    #: The repositories that have it; if that is one, there is a copy or a problem.
    repository_urls: tuple[str, ...] = ()
    directory: str = ""
    #: Differs when what it is a copy of does.
    digest: str = ""
    problem: str = ""


class ReadModel(NamedTuple):
    """Look up a model in the repositories; the answer is `model_read` with this ticket."""

    ticket: int
    model: str
    #: What stands in for what is there.
    override: LoadOverride | None
    #: What object stores have; None: they were not asked.
    local_copy: LocalCopy | None = None


class MeasureMemory(NamedTuple):
    """Of these processes, by what is named here; the answer is `demand.measured`."""

    model_by_pid: dict[int, str]


class RemoveDirectory(NamedTuple):
    """A directory that a load has brought along."""

    path: str


class ListRepository(NamedTuple):
    """Name what the repositories hold; the answer is `repository_listed` with this ticket."""

    ticket: int
    #: Names in object stores, one for each repository that has it, with what is wrong with it.
    remote_models: tuple[tuple[str, str], ...] = ()


class ChangeRepositories(NamedTuple):
    """Look into one more directory for models, or into one less; the answer is
    `repositories_changed` with this ticket."""

    ticket: int
    path: str
    is_registration: bool


class OpenRegion(NamedTuple):
    """Open a client's shared memory and keep it; the answer is `region_opened`."""

    number: int
    name: str
    #: As the client gave it, for errors.
    key: str
    #: In /dev/shm.
    file: str
    offset: int
    size: int


class CloseRegion(NamedTuple):
    """Nobody else will be given its descriptor."""

    number: int


class PrepareToListen(NamedTuple):
    """The frontends are about to listen on the sockets that are held for them."""


class StopListening(NamedTuple):
    """Clients find nobody any more, rather than one who never takes them."""


class Log(NamedTuple):
    """One record. The level is Triton's letter: I, W, E, V."""

    level: str
    text: str
    #: Where in our code it was decided.
    file: str = ""
    line: int = 0


class NotifyServiceManager(NamedTuple):
    """Tell the service manager, in its own form."""

    text: str


class ShowTables(NamedTuple):
    """Print what was loaded: (model, version, status), and the options."""

    models: list[tuple[str, str, str]]


class PrintError(NamedTuple):
    """A line on stderr for whoever started the server, log options or not."""

    text: str


class Exit(NamedTuple):
    """End what is left and leave with this status."""

    status: int


Action = (
    Spawn
    | SpawnStub
    | PrepareEnvironment
    | Send
    | Signal
    | ReadModel
    | MeasureMemory
    | RemoveDirectory
    | ListRepository
    | ChangeRepositories
    | OpenRegion
    | CloseRegion
    | PrepareToListen
    | StopListening
    | Log
    | NotifyServiceManager
    | ConfigureLogging
    | ShowTables
    | PrintError
    | Exit
)
