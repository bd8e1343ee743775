"""Finds a running server of this user and calls it.

Raises NoServerError if there is none, and the server's own error if it refuses.
"""

from __future__ import annotations

import errno
import json
import os
import pwd
import re
import socket
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from zmqtriton.runtime_places import named_directory, places
from zmqtriton_floor.errors import NotFound, ZmqTritonError, closest_match, from_number
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_floor.wire import Call, CallResult

_SOCKET = "ctl"
_PREFIX = "zmqtriton-"
#: Directory of the service, as systemd makes it. Those of its instances are next to it.
_SERVICE = Path("/run/zmqtriton")
#: The kernel's list of the sockets of this machine or container, and in it those that listen as
#: servers do (SOCK_SEQPACKET): a server may have been given any directory.
_KERNEL_SOCKETS = Path("/proc/net/unix")
_LISTENING = re.compile(rf"^(?:\S+ +){{3}}00010000 0005 \S+ +\d+ (/.*)/{_SOCKET}$", re.MULTILINE)
#: The meaning of the socket's errors.
_REASONS = {
    errno.ENOENT: "there is none",
    errno.ECONNREFUSED: "the server has ended",
    errno.EACCES: "it is another user's; ask as that user or as root",
}
#: Time limits of the question which server it is. The first is for all servers, which answer it
#: from memory; the second is for silent ones on a busy machine, if none of the others is meant.
_IDENTITY_WITHIN_S, _IDENTITY_AT_LAST_S = 2.0, 8.0
#: Number of servers that an error names.
_NAMED_SERVERS = 3


class NoServerError(Exception):
    """Raised if no server answers; names the searched places and their findings."""


class ServerSelector(NamedTuple):
    """The user's choice of a server."""

    directory: str = ""
    #: Id, pid or one of the ports of the server; "" if the user has not named it.
    name: str = ""

    def connect(self, *, to_change: bool = False) -> Client:
        """Connect to the server that is meant, by default the newest.

        Raises NoServerError, also if something is to be changed and several could be meant.
        """
        clients = self.connect_all()
        meant = _find_named(clients, self.name) if self.name else clients
        if not self.name and named_directory(self.directory):
            meant = clients[:1]
        if not meant or (len(meant) > 1 and (self.name or to_change)):
            problem = _selection_problem(clients, len(meant), self.name)
            for client in clients:
                client.close()
            raise NoServerError(problem)
        for client in clients:
            if client is not meant[0]:
                client.close()
        meant[0].other_count = len(meant) - 1
        return meant[0]

    def connect_all(self) -> list[Client]:
        """Connect to all living servers, the newest first. Raises NoServerError without any."""
        clients, failures = [], []
        for directory in find_directories(self.directory):
            end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
            try:
                end.connect(str(directory / _SOCKET))
            except OSError as error:
                end.close()
                reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
                failures.append(f"{directory} ({reason})")
                continue
            clients.append(Client(end, directory))
        if clients:
            return clients
        if failures[_NAMED_SERVERS:]:
            failures[_NAMED_SERVERS:] = [f"{len(failures) - _NAMED_SERVERS} older ones"]
        where = ", ".join(failures) or " or ".join(
            [*(f"{place}/{_PREFIX}*" for place in places()), str(_SERVICE)]
        )
        raise NoServerError(f"no running server found in {where}{_other_users_hint()}")


class ServerIdentity(NamedTuple):
    """The marks that tell a server from others."""

    id: str
    pid: int
    version: str
    started_s: float
    #: Addresses of the server by protocol.
    addresses: Mapping[str, str]
    #: State of the server's readiness, in words.
    ready: str
    #: The commit of its code; "" in a release, and in a server of an earlier version.
    commit: str = ""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ServerIdentity:
        return cls(**{name: document[name] for name in cls._fields if name in document})

    @classmethod
    def from_status(cls, status: Mapping[str, Any]) -> ServerIdentity:
        return cls.from_document({**status["server"], **status["processes"][0]})

    @property
    def build(self) -> str:
        """The version with the commit."""
        return "+".join(filter(None, (self.version, self.commit)))

    @property
    def is_stopping(self) -> bool:
        return self.ready.startswith("stopping")

    def matches(self, name: str) -> bool:
        ports = {address.rpartition(":")[2] for address in self.addresses.values()}
        return name in {self.id, str(self.pid), f"pid:{self.pid}", *ports, *map(":".__add__, ports)}

    def describe(self) -> str:
        where = "".join(f", {service} {place}" for service, place in self.addresses.items())
        return f"'{self.id}' (pid {self.pid}{where})"


def find_directories(directory: str = "") -> Iterator[Path]:
    """Return the directories where a server may be.

    If a directory is named, these are its servers' directories, the serving one first: others may
    be starting or ending. Otherwise they are this user's, the newest first, then other users' if
    this user is root, and those that systemd made.
    """
    named = named_directory(directory)
    if named:
        yield from _in_named(Path(named))
        return
    own = os.geteuid()
    servers = [
        (owner == own, _started_s(path), path) for path, owner in _candidates() if own in (owner, 0)
    ]
    paths = [path for _, _, path in sorted(servers, reverse=True)]
    yield from paths
    # not exists(), which returns False where looking is forbidden
    if os.path.lexists(_SERVICE) and _SERVICE not in paths:
        yield _SERVICE
    yield from sorted({*_SERVICE.parent.glob(f"{_SERVICE.name}-*")}.difference(paths))


def _in_named(directory: Path) -> Iterator[Path]:
    yield directory
    try:
        servers = sorted(directory.glob("[0-9]*"))
    except OSError:  # the last server there has just removed it
        return
    yield from (
        own for own in servers if own != _own_of(directory) and os.path.lexists(own / _SOCKET)
    )


def _own_of(directory: Path) -> Path:
    """Return the server's own directory that a named directory links to; else `directory`."""
    try:
        return directory / os.path.dirname(os.readlink(directory / _SOCKET))
    except OSError:
        return directory


def _candidates() -> Iterator[tuple[Path, int]]:
    """Return the directories with their owners."""
    paths = [path for place in places() for path in sorted(place.glob(f"{_PREFIX}*"))]
    for path in dict.fromkeys([*paths, *_listening()]):
        try:
            status = path.lstat()
        except OSError:
            continue  # it ends at this moment
        if stat.S_ISDIR(status.st_mode):
            yield path, status.st_uid


def _listening() -> Iterator[Path]:
    """Return the directories of servers that run."""
    try:
        text = _KERNEL_SOCKETS.read_bytes()
    except OSError:
        return  # not every container has it
    for name in _LISTENING.findall(os.fsdecode(text)):
        path = Path(name)
        yield path.parent if _own_of(path.parent) == path else path


def _started_s(directory: Path) -> float:
    """Return the time when a directory's server began to listen; 0 without a server.

    It is the time of the socket, since that of the directory changes with each stub.
    """
    try:
        return (directory / _SOCKET).stat().st_mtime
    except OSError:
        return 0.0


def _find_named(clients: Sequence[Client], name: str) -> list[Client]:
    """Return the clients whose servers have this name, one for each directory."""
    named: list[Client] = []
    for within_s in (_IDENTITY_WITHIN_S, _IDENTITY_AT_LAST_S):
        if not named:
            Client.identify_all(clients, within_s)
            named = [client for client in clients if client.matches(name)]
    # of those in a named directory, the one to which that leads
    shown = {client.directory for client in named}
    return [client for client in named if client.directory.parent not in shown]


def _selection_problem(clients: Sequence[Client], meant: int, name: str) -> str:
    running = ", ".join(client.describe() for client in clients[:_NAMED_SERVERS])
    if clients[_NAMED_SERVERS:]:
        running += f" and {len(clients) - _NAMED_SERVERS} more, see `zmqtriton-ctl servers`"
    if not meant:
        whom = "server that has answered" if any(one.is_unknown for one in clients) else "server"
        return f"no {whom} is called '{name}'; running: {running}"
    if name:
        # a server that was replaced has its port until it has ended
        return f"{meant} servers are called '{name}', so name its pid, as pid:N; running: {running}"
    return (
        f"{meant} servers run, so say which is meant, --server ID, PID or PORT; running: {running}"
    )


def _other_users_hint() -> str:
    """Name the users whose servers might be meant."""
    owners = {owner for _, owner in _candidates()} - {os.geteuid()}
    if not owners:
        return ""
    users = " and ".join(map(user_name, sorted(owners)))
    return f"; {users} may have one: ask as that user or as root"


def own_name() -> str:
    """Return the name of this process in the server's log."""
    return f"process {os.getpid()} of {user_name(os.geteuid())}"


def user_name(number: int) -> str:
    """Return the name of a user, for people."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


class Client(AbstractContextManager["Client"]):
    #: Time limit of calls that a server answers from memory; a load takes as long as the model.
    QUICK_TIMEOUT_S = 10.0

    def __init__(self, end: socket.socket, directory: Path) -> None:
        self.line = Lifeline(end)
        self._last_id = 0
        self._last_verb = ""
        self._identity: ServerIdentity | None = None
        #: The reason why its identity is not known, after a question for it; "" otherwise.
        self.silence = ""
        self.directory = directory
        #: Number of other servers that might have been meant.
        self.other_count = 0

    @property
    def is_unknown(self) -> bool:
        return self._identity is None

    @property
    def identity(self) -> ServerIdentity:
        """The marks of the server, which is asked once. Raises NoServerError."""
        if self._identity is None and not self.silence:
            Client.identify_all([self])
        if self._identity is None:
            raise NoServerError(self.silence)
        return self._identity

    def take_identity(self, within_s: float) -> None:
        """Take the server's identity from its answer, if that comes within `within_s` seconds."""
        try:
            try:
                self._identity = ServerIdentity.from_document(self.finish(within_s))
            except ZmqTritonError:  # one of an older version does not know the call
                self._identity = ServerIdentity.from_status(
                    self.call("status", {}, Client.QUICK_TIMEOUT_S)
                )
        except NoServerError as silence:
            self.silence = str(silence)
        except (KeyError, TypeError):
            self.silence = f"in {self.directory} is no server that answers 'identity' as ours do"

    def matches(self, name: str) -> bool:
        return self._identity is not None and self._identity.matches(name)

    def describe(self) -> str:
        """Describe the server for a user who has to choose one."""
        try:
            return self.identity.describe()
        except NoServerError as silence:
            return f"a server that cannot be asked ({silence})"

    def call(
        self, verb: str, arguments: dict[str, Any] | None = None, timeout_s: float | None = None
    ) -> Any:
        """Call and return the result.

        Raises the server's error, or NoServerError if it ends or does not answer in time.
        """
        self.begin(verb, arguments)
        return self.finish(timeout_s)

    def check_model(self, model: str) -> None:
        """Raise NotFound for a name that no repository has and that is not served either.

        "" names no model, and is right where a command may do without one.
        """
        if not model:
            return
        names = [
            entry["name"] for entry in self.call("index", {"ready": False}, self.QUICK_TIMEOUT_S)
        ]
        if model not in names:
            raise self.unknown_model(model, names)

    @staticmethod
    def unknown_model(model: str, names: Iterable[str]) -> NotFound:
        """Return the error for a name outside of these."""
        close = closest_match(model, names)
        meant = f"; did you mean '{close}'?" if close else "; `zmqtriton-ctl models` lists them"
        return NotFound(f"there is no model '{model}'{meant}")

    def begin(self, verb: str, arguments: dict[str, Any] | None = None) -> None:
        """Send a call; answers to earlier calls are no longer read."""
        self._last_id, self._last_verb = self._last_id + 1, verb
        self.line.send(Call(self._last_id, verb, json.dumps(arguments or {}), own_name()))

    def finish(self, timeout_s: float | None) -> Any:
        """Return the result of the call that was begun last."""
        return self.finish_with_descriptors(timeout_s)[0]

    def finish_with_descriptors(self, timeout_s: float | None) -> tuple[Any, list[int]]:
        """Return also the descriptors that came with the result; the caller owns them."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.line.ended:
            left_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
            if not self.line.wait(left_s):
                raise NoServerError(
                    f"timed out: the server in {self.directory} has not answered "
                    f"'{self._last_verb}' within {timeout_s:.3g} s; it is busy or stopped, "
                    "try again"
                )
            for message, descriptors in self.line.receive():
                if isinstance(message, CallResult) and message.id == self._last_id:
                    if message.code:
                        raise from_number(message.code, message.text)
                    return json.loads(message.result), descriptors
        raise NoServerError(
            f"the server in {self.directory} has ended the conversation: it is stopping, or this "
            "process belongs to a model"
        )

    def close(self) -> None:
        self.line.close()

    def __exit__(self, *error: object) -> None:
        self.close()

    @staticmethod
    def identify_all(clients: Iterable[Client], within_s: float = _IDENTITY_WITHIN_S) -> None:
        """Ask all together which servers they are; silent ones stay unknown."""
        unknown = [client for client in clients if client.is_unknown]
        deadline_s = time.monotonic() + within_s
        for client in unknown:
            client.begin("identity")
        for client in unknown:
            client.take_identity(max(0.0, deadline_s - time.monotonic()))
