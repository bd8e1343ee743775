"""Ports: the processes that listen on one, and ports shared with this user's other servers.

Each of these servers has a listening socket on the port. The kernel spreads new connections over
the sockets by a hash, or as a filter of ours says, which sends all of them to the other servers. No
connection is lost then; a socket that is closed at once would take the connections with it that are
just being made.

The filter needs the place of our own socket in the kernel's array of them. A new socket is added at
the end, and where one is removed the last one takes its place. So a server that has been alone once
is the first, and a server that found others is behind them for as long as all of them are there.

Listening processes are read from /proc; processes that this user may not see stay unknown.
"""

from __future__ import annotations

import ctypes
import logging
import os
import pwd
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from zmqtriton_floor.logs import escape

# from <linux/filter.h>: load a word, A %= k, skip one if not A >= k, A += k, return k, return A
_LOAD, _MODULO, _IF_AT_LEAST, _ADD, _RETURN, _RETURN_A = 0x20, 0x94, 0x35, 0x04, 0x06, 0x16
#: Offset of a random number for the load of a filter: SKF_AD_OFF + SKF_AD_RANDOM.
_RANDOM = 0xFFFFF000 + 56
_ATTACH_FILTER, _DETACH_FILTER = 51, 68  # SO_ATTACH_REUSEPORT_CBPF, SO_DETACH_REUSEPORT_BPF
_Step = tuple[int, int, int, int]

_log = logging.getLogger(__name__)
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENING = "0A"
_MAX_COMMAND = 100
#: The name of the process that has the sockets of socket units, with their services.
_SYSTEMD = "systemd"
#: The words about a hidden process of root, which may be systemd.
_OR_SOCKET_UNIT = ", or a socket unit (`systemctl list-sockets`)"


def _listeners_at(address: tuple[str, int]) -> set[int]:
    """Return the inodes of the sockets that listen at an address, in any process."""
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    words = struct.iter_unpack("=I", socket.inet_pton(family, host.partition("%")[0]))
    place = "".join(f"{word:08X}" for (word,) in words)
    return {int(inode) for where, inode, _ in listening_sockets(port) if where == place}


def steps_to_others(own: int, count: int) -> list[_Step]:
    """Return the filter that chooses any socket of so many, but not the one with this number."""
    if count == 2:
        return [(_RETURN, 0, 0, 1 - own)]
    return [
        (_LOAD, 0, 0, _RANDOM),
        (_MODULO, 0, 0, count - 1),
        (_IF_AT_LEAST, 0, 1, own),
        (_ADD, 0, 0, 1),
        (_RETURN_A, 0, 0, 0),
    ]


class SharedPort:
    """A port that this server may share with others, and its own socket at the port."""

    def __init__(self, bound: socket.socket) -> None:
        self._bound = bound
        self._address = bound.getsockname()[:2]
        #: Listeners that were there before ours, and whether ours was the next one.
        self._earlier: set[int] = set()
        self._was_next = False
        self._was_alone = False

    def before_listening(self) -> None:
        self._earlier = self._others()
        self._was_alone = not self._earlier

    def look(self) -> bool:
        """Look for other listeners; return False if another look is worthwhile."""
        if not self._was_alone:
            others = self._others()
            self._was_next = self._was_next or others == self._earlier
            self._was_alone = not others
        return self._was_alone

    def send_elsewhere(self) -> int:
        """Send new connections to other servers; return how many there are.

        New connections that cannot be sent elsewhere continue to arrive here.
        """
        others = self._others()
        number = self._number_beside(others)
        if others and number is not None and self._is_listening:
            with suppress(OSError):
                _attach(self._bound, steps_to_others(number, 1 + len(others)))
        return len(others)

    def _number_beside(self, others: set[int]) -> int | None:
        """Return the number of our socket; None if it cannot be known."""
        if self._was_alone:
            return 0
        if others == self._earlier or (self._was_next and others > self._earlier):
            return len(self._earlier)
        return None

    def take_back(self) -> None:
        """Let the kernel spread connections over all servers again, whichever one diverted them."""
        with suppress(OSError):  # there was none
            self._bound.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0)

    @property
    def _is_listening(self) -> bool:
        return bool(self._bound.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))

    def _others(self) -> set[int]:
        number = self._bound.fileno()
        return _listeners_at(self._address) - (set() if number < 0 else {os.fstat(number).st_ino})


class SharedPorts:
    """All ports of a server that it shares with others."""

    def __init__(self, bound: Iterable[socket.socket]) -> None:
        self._ports = [SharedPort(each) for each in bound]

    def before_listening(self) -> None:
        for port in self._ports:
            port.before_listening()

    def look(self) -> bool:
        return all([port.look() for port in self._ports])

    def send_elsewhere(self) -> None:
        if any([port.send_elsewhere() for port in self._ports]):
            _log.info("new connections go to the other server at the same port")

    def take_back(self) -> None:
        for port in self._ports:
            port.take_back()


def _attach(bound: socket.socket, steps: Iterable[_Step]) -> None:
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    program = ctypes.create_string_buffer(code, len(code))
    # struct sock_fprog: the number of steps, padding up to a pointer, and that
    head = struct.pack("@HP", len(code) // 8, ctypes.addressof(program))
    bound.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, head)
    del program  # the kernel has copied it


def describe_listener(port: int) -> str:
    """Describe the process that listens, as `process 12 (python3 -m http.server)`.

    Describe its user if the process is hidden, which systemd's is, too; return "" if none listens.
    """
    owners = {inode: user for _, inode, user in listening_sockets(port)}
    if not owners:
        return ""
    for pid in _holders(owners):
        with suppress(OSError):
            return f"process {pid} ({_command(pid)})"
    owner = min(owners.values())
    return f"a process of {_user_name(owner)}{'' if owner else _OR_SOCKET_UNIT}"


def is_used(port: int) -> bool:
    """Return whether a socket listens at this port, in any process."""
    return any(True for _ in listening_sockets(port))


def is_shared_with(program: str, port: int) -> bool:
    """Return whether the socket that listens is one of this program, or waits in systemd for one.

    A server that systemd has passed the socket to is one holder of several. A hidden process of
    this user may be of the program: a server is, if it has capabilities.
    """
    owners = {inode: user for _, inode, user in listening_sockets(port)}
    names = set(_names_of_holders(owners))
    if not names:
        return os.geteuid() in owners.values()
    return program in names or names == {_SYSTEMD}


def waits_in_systemd(port: int) -> bool:
    """Return whether systemd alone holds the socket that listens, for a service that is to come."""
    return set(_names_of_holders([inode for _, inode, _ in listening_sockets(port)])) == {_SYSTEMD}


def _names_of_holders(inodes: Iterable[str]) -> Iterator[str]:
    for pid in _holders(inodes):
        with suppress(OSError):
            yield _status(pid)["Name"]


def _holders(inodes: Iterable[str]) -> Iterator[str]:
    """Return the processes that have one of these sockets."""
    links = {f"socket:[{inode}]" for inode in inodes}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if not links.isdisjoint(_open_files(pid)):
            with suppress(OSError):
                yield _first_of_program(pid)


def listening_sockets(port: int) -> Iterator[tuple[str, str, int]]:
    """Return address (in the kernel's words), inode and user of each socket that listens."""
    for table in _TABLES:
        with suppress(OSError), open(table, encoding="ascii") as rows:
            next(rows, "")
            for columns in map(str.split, rows):
                if columns[3] != _LISTENING:
                    break  # all that listen come first
                address, _, number = columns[1].rpartition(":")
                if int(number, 16) == port:
                    yield address, columns[9], int(columns[7])


def _open_files(pid: str) -> Iterator[str]:
    with suppress(OSError):  # another user's, or it has just ended
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                yield os.readlink(f"/proc/{pid}/fd/{descriptor}")


def _first_of_program(pid: str) -> str:
    """Return the process to stop: a worker may be replaced by the one that has started it.

    A worker is known by a name that it has given itself, which begins with that of its parent.
    """
    while True:
        name, parent = _status(pid)["Name"], _status(pid)["PPid"]
        has_own_name = name != os.path.basename(_words(pid)[0])
        if parent == "0" or not (has_own_name and name.startswith(_status(parent)["Name"])):
            return pid
        pid = parent


def _status(pid: str) -> dict[str, str]:
    lines = Path("/proc", pid, "status").read_text("utf-8", "replace").splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _command(pid: str) -> str:
    """Return the words of a command line before its options, which may hold secrets."""
    words = _words(pid)
    options = (index for index, word in enumerate(words) if word[:1] == "-" and word != "-m")
    # another user's text must not control the terminal
    shown = escape(" ".join(words[: next(options, None)]).strip() or _status(pid)["Name"])
    return shown if len(shown) <= _MAX_COMMAND else f"{shown[:_MAX_COMMAND]}..."


def _words(pid: str) -> list[str]:
    return Path("/proc", pid, "cmdline").read_text("utf-8", "replace").rstrip("\0").split("\0")


def _user_name(number: int) -> str:
    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"
