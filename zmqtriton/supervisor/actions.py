"""The core's decisions: orders to the service, which performs them in this sequence.

An action has no result; its outcome returns to the core as an event, or by `Plan.answer` if it has
a ticket.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from zmqtriton.config.parameters import NO_QUOTA, Quota
from zmqtriton.environments.demand import Environment, EnvironmentSpec
from zmqtriton.reading.blueprint import LoadOverride as LoadOverride
from zmqtriton.repository.decisions import KeepDecisions as KeepDecisions
from zmqtriton.repository.scan import NO_EXCEPTIONS, VersionSelection
from zmqtriton_floor import wire
from zmqtriton_floor.logs import LogOptions
from zmqtriton_floor.process.named_tuples import NamedTuple
from zmqtriton_floor.reasons import Reason

#: The names of models, each with the problem of all its versions, if there is one.
RepositoryNames = dict[str, Reason | None]
#: Models of object stores: an entry for each repository that has the model, with its problem.
RemoteNames = tuple[tuple[str, str], ...]


class FileReport(NamedTuple):
    """The result of LookAtFiles."""

    #: The fingerprint of the files of each model.
    fingerprints: Mapping[str, str]
    took_s: float


class Spawn(NamedTuple):
    """Start a process, which learns its serial number from its lifeline only."""

    serial: int
    role: str


class Template(NamedTuple):
    """A process that loads a model once, for all instances, which are its forks or threads."""

    serial: int
    load: wire.LoadModel
    #: Maximum seconds of a load; 0 is no limit.
    load_within_s: float = 0.0
    has_threads: bool = False
    #: Serial of the spare process that forks it; 0 without one.
    spare: int = 0
    #: Serial of the template of earlier code, which it may be a fork of, or whose process it may
    #: share; 0 for none.
    origin: int = 0


class EndTemplate(NamedTuple):
    """End a template, if it exists; its forks live on, and its last thread keeps it alive."""

    serial: int
    #: True to end the threads of a template at once, with it.
    at_once: bool = False


class Assignment(NamedTuple):
    """The cores of an instance's process, and variables that its model gets."""

    #: () means the cores of its host policy, or any.
    cores: tuple[int, ...] = ()
    #: A variable that the server itself was started with stays as it is.
    variables: Mapping[str, str] = MappingProxyType({})


class SpawnStub(NamedTuple):
    """Start a stub for an instance of a model, in the model's environment."""

    serial: int
    environment: Environment
    model: str
    instance: str
    host_policy: str = ""
    quota: Quota = NO_QUOTA
    version: int = 0
    #: The process that the stub is a fork of; None for one that loads by itself.
    template: Template | None = None
    #: Serial of the spare process that forks the stub, or its template; 0 without one.
    spare: int = 0
    assignment: Assignment = Assignment()


class StartSpare(NamedTuple):
    """Start the spare process of an environment; it imports what a Call "import" names."""

    serial: int
    environment: Environment
    #: The model whose imports were recorded last, for the log.
    model: str


class Pin(NamedTuple):
    """Move all threads of an instance to these cores."""

    serial: int
    cores: tuple[int, ...]


class PrepareEnvironment(NamedTuple):
    """Start a process that prepares a model's environment and answers with its location."""

    serial: int
    model: str
    demand: EnvironmentSpec


class ConfigureLogging(NamedTuple):
    """Configure the supervisor's own log records."""

    options: LogOptions


class AdmitGuest(NamedTuple):
    """Let a caller on the control socket take part as a frontend."""

    serial: int


class Send(NamedTuple):
    """Send a message over the lifeline of a process, or to a caller on the control socket."""

    serial: int
    message: Any


class KeepSegments(NamedTuple):
    """Keep segments of a dead process that other processes still read, and free the rest."""

    owner: int
    segments: Sequence[int] = ()


class Signal(NamedTuple):
    """Send a signal to a process; with `group`, also to all processes that it has started.

    With `thread` the thread of this name gets the signal, if the process has one.
    """

    serial: int
    number: int
    group: bool = False
    thread: str = ""


class GiveUpThread(NamedTuple):
    """Go on without a thread that never became ready; the others of its process continue."""

    serial: int
    reason: Reason


class LocalCopy(NamedTuple):
    """A model of an object store, as it is on this machine."""

    #: The repositories that have it; if there is exactly one, there is a copy or a problem.
    repository_urls: tuple[str, ...] = ()
    directory: str = ""
    #: Changes with the content that was copied.
    digest: str = ""
    problem: str = ""
    #: The model's own directory is part of it, and no repository is asked any more.
    is_whole: bool = False


class ReadModel(NamedTuple):
    """Look up a model in the repositories; the answer is a Blueprint or a ReadFailure."""

    ticket: int
    model: str
    #: Used in place of the repository's files.
    override: LoadOverride | None
    #: The model's copy from object stores; None if they were not asked.
    local_copy: LocalCopy | None = None
    selection: VersionSelection = NO_EXCEPTIONS


class CancelReading(NamedTuple):
    """Expect no answer to a ReadModel any more."""

    ticket: int


class InBackground(NamedTuple):
    """Call a function that may be slow, and raises nothing, in a thread; it returns the answer."""

    ticket: int
    call: Callable[[], Any]


class ReadStacks(NamedTuple):
    """Let stubs write their Python stacks; the answer has the lines of each, by serial number."""

    ticket: int
    serials: tuple[int, ...]


class RemoveDirectory(NamedTuple):
    """Remove a directory that came with a load, or belonged to a generation."""

    path: str


class ListRepository(NamedTuple):
    """List the models of the repositories; the answer is RepositoryNames, or an error."""

    ticket: int
    remote_models: tuple[tuple[str, str], ...] = ()
    #: Wait for a repository that does not answer, unless it was listed before.
    is_patient: bool = False
    #: Wait for none longer than a moment: those that are slow have what they had before.
    is_urgent: bool = False


class LookAtFiles(NamedTuple):
    """Check the files of these models for changes; the answer is a FileReport."""

    ticket: int
    models: tuple[str, ...]


class ChangeRepositories(NamedTuple):
    """Add or remove a directory of models; the answer is a tuple of all in use."""

    ticket: int
    path: str
    is_registration: bool
    #: Names of models that are not those of their folders, by folder.
    names: Mapping[str, str] = MappingProxyType({})


class OpenRegion(NamedTuple):
    """Open a client's shared memory and keep it.

    The answer is an error, or whether stubs may map it.
    """

    ticket: int
    number: int
    name: str
    #: The key as the client gave it, for error texts.
    key: str
    #: The name in /dev/shm.
    file: str
    offset: int
    size: int
    #: User id of the client that registers it; negative if it is unknown.
    user: int
    #: Handle of memory on a GPU: processes of models open it with this, as it has no file.
    handle: bytes = b""


class CloseRegion(NamedTuple):
    """Close a client's shared memory, so that no other process gets its descriptor.

    Processes of models that have it open are informed. With a ticket, the answer lists them.
    """

    number: int
    ticket: int = 0


class PrepareToListen(NamedTuple):
    """Let the frontends listen on the sockets that are held open for them."""


class TellOpen(NamedTuple):
    """Notify the server's parent that every service has opened."""


class StopListening(NamedTuple):
    """Close the listening sockets, so that clients are refused and do not wait in vain."""


class GiveSockets(NamedTuple):
    """Answer a call with copies of the listening sockets, for the next server."""

    caller: int
    call_id: int


class GiveOutput(NamedTuple):
    """Answer a call with this server's stdout and stderr, for the next server."""

    caller: int
    call_id: int
    #: JSON text of the answer.
    document: str


class LookAtPorts(NamedTuple):
    """Find the other servers that have our ports; the answer is True if they are known."""

    ticket: int


class SendElsewhere(NamedTuple):
    """Let new connections go to the other servers that have our ports, if there are any."""


class TakeClientsBack(NamedTuple):
    """Let new connections come to this server again."""


class Log(NamedTuple):
    """Write a log record. The level is Triton's letter: I, W, E, V."""

    level: str
    text: str
    #: Source file with the code that logs the record.
    file: str = ""
    line: int = 0
    #: Text that is printed after the line without quotes, as Triton prints configurations.
    raw: str = ""
    #: JSON that is part of the text, and is indented if the record is written at all.
    document: str = ""
    #: Model, version and instance that the record is about, if they are known.
    model: str = ""
    version: int = 0
    instance: str = ""
    #: Clients cause it as often as they like.
    is_of_client: bool = False


class NotifyServiceManager(NamedTuple):
    """Notify the service manager, in its own format."""

    text: str


class ShowTables(NamedTuple):
    """Print the tables of models (name, version, status), of backends, and of options."""

    models: list[tuple[str, str, str]]
    #: Name and file of each that a model has, beside Python's.
    backends: Sequence[tuple[str, str]] = ()


class PrintError(NamedTuple):
    """Print a line on stderr for the server's operator, with any log options."""

    text: str


class Exit(NamedTuple):
    """End all remaining processes and exit with this status."""

    status: int


Action = (
    Spawn
    | SpawnStub
    | Pin
    | EndTemplate
    | PrepareEnvironment
    | StartSpare
    | AdmitGuest
    | Send
    | KeepSegments
    | Signal
    | GiveUpThread
    | ReadModel
    | CancelReading
    | KeepDecisions
    | InBackground
    | ReadStacks
    | RemoveDirectory
    | ListRepository
    | LookAtFiles
    | ChangeRepositories
    | OpenRegion
    | CloseRegion
    | PrepareToListen
    | TellOpen
    | StopListening
    | GiveSockets
    | GiveOutput
    | LookAtPorts
    | SendElsewhere
    | TakeClientsBack
    | Log
    | NotifyServiceManager
    | ConfigureLogging
    | ShowTables
    | PrintError
    | Exit
)
