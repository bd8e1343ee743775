"""The user at the other end of a TCP connection, if that is on this machine, by the kernel's word.

The kernel has both ends of such a connection, and the client's end has its user. If permitted, it
answers a question about one connection (sock_diag); its tables have a row for each end of all
connections. Neither has clients in other network namespaces, such as containers.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from zmqtriton_floor.hosts import ip_of
from zmqtriton_frontends.process.own_threads import Threads

#: Stands for a user that is not known: the client is elsewhere, or its user has no number here.
UNKNOWN = -1

_PROC = Path("/proc")
_MAPPED_PREFIX = bytes(10) + b"\xff\xff"
#: All users, by their own numbers.
_ALL_USERS = "0 0 4294967295"
#: Looks at a table: a row may be passed over while others come and go.
_LOOKS = 3
#: linux/netlink.h, sock_diag.h and inet_diag.h: the head of a message, the question about a socket
#: with two ends, and what is read of the answer: a state, a user and an inode.
_NETLINK_SOCK_DIAG, _BY_FAMILY, _REQUEST = 4, 20, 1
_HEAD, _QUESTION = struct.Struct("=IHH8x"), struct.Struct("=BB6x2s2s16s16sIII")
_ANSWER, _ROOM = struct.Struct("=xB2x48x12xII"), 4096
_NO_COOKIE, _LISTENS = 0xFFFFFFFF, 10
#: Numbers of the interfaces that a client may be bound to: any, and that of the machine itself.
_INTERFACES = 0, 1


class Endpoint(NamedTuple):
    """One end of a connection; without a host, an end at any host."""

    host: str
    port: int


_threads = Threads("tables of connections", 2, 1024)


async def user_of(client: Endpoint, server: Endpoint) -> int:
    """Return the user of a client that is connected to this server; UNKNOWN if not found.

    A thread looks: with many connections the tables are long.
    """
    return await _threads.run(find_user, client, server)


def find_user(client: Endpoint, server: Endpoint) -> int:
    """Return the user of the client; see user_of()."""
    if not (server.host and may_ask()):
        return find_in_tables(client, server)
    answers = [_ask(client, server, interface) for interface in _INTERFACES]
    # where there is no such connection, it may be what listens there; one that its process has
    # closed has no inode, and is root's
    users = {user for state, user, inode in filter(None, answers) if state != _LISTENS and inode}
    return _only(users, _PROC)


def user_of_client(connection: socket.socket) -> int:
    """Return the user of the client of an accepted connection; UNKNOWN if not found."""
    with suppress(OSError):  # the client has gone
        return find_user(place_of(connection.getpeername()), place_of(connection.getsockname()))
    return UNKNOWN


def _only(users: set[int], proc: Path) -> int:
    """Return the only user of these who has a number of its own; UNKNOWN without one."""
    [user, *others] = users or {UNKNOWN}
    return UNKNOWN if others or user == UNKNOWN or not _is_mapped(user, proc) else user


# ------------------------------------------------------------- by a question


@cache
def may_ask() -> bool:
    """True if the kernel answers: it needs a module and, in a container, the permission."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            return _ask(place_of(listener.getsockname()), Endpoint("127.0.0.1", 0), 0) is not None
    except OSError:
        return False


def _ask(own: Endpoint, other: Endpoint, interface: int) -> tuple[int, int, int] | None:
    """Return state, user and inode of the socket with these ends; None without an answer."""
    ends = _packed(own.host), _packed(other.host)
    family = socket.AF_INET if len(ends[0]) == 4 else socket.AF_INET6
    ports = (place.port.to_bytes(2, "big") for place in (own, other))
    _, _, scope = own.host.partition("%")
    try:
        where = socket.if_nametoindex(scope) if scope else interface
        head = _HEAD.pack(_HEAD.size + _QUESTION.size, _BY_FAMILY, _REQUEST)
        subject = family, socket.IPPROTO_TCP, *ports, *ends, where, _NO_COOKIE, _NO_COOKIE
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
            kernel.sendto(head + _QUESTION.pack(*subject), (0, 0))
            answer = kernel.recv(_ROOM)
    except OSError:
        return None
    is_answer = _HEAD.unpack_from(answer)[1] == _BY_FAMILY
    return _ANSWER.unpack_from(answer, _HEAD.size) if is_answer else None


# ---------------------------------------------------------------- by a table


def find_in_tables(client: Endpoint, server: Endpoint, proc: Path = _PROC) -> int:
    """Return the user of the client, from the tables of all connections."""
    for _ in range(_LOOKS):
        users = set(_users(client, server, proc))
        if users:
            return _only(users, proc)
    return UNKNOWN


def _users(client: Endpoint, server: Endpoint, proc: Path) -> Iterator[int]:
    for name, is_wide in (("tcp", False), ("tcp6", True)):
        own, other = _written(client, is_wide), _written(server, is_wide)
        if not own:
            continue
        try:
            table = (proc / "net" / name).read_text("ascii")
        except OSError:
            continue
        at = -1
        while (at := table.find(own, at + 1)) >= 0:
            line = table[table.rfind("\n", 0, at) + 1 : table.find("\n", at)]
            _, local, remote, _, _, _, _, user, _, inode, *_ = line.split()
            # a connection that its process has closed has no inode, and is root's
            if local == own and remote.endswith(other) and inode != "0":
                yield int(user)


def _written(place: Endpoint, is_wide: bool) -> str:
    """Return an endpoint as the tables write it; "" if it cannot be in a table of this family."""
    if not place.host:
        return f":{place.port:04X}"
    packed = _packed(place.host)
    if is_wide and len(packed) == 4:
        packed = _MAPPED_PREFIX + packed
    if len(packed) != (16 if is_wide else 4):
        return ""
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    address = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    return f"{address}:{place.port:04X}"


def _packed(host: str) -> bytes:
    """Return the bytes of an address of IPv4 or IPv6; b"" for any other text."""
    ip = ip_of(host)
    return b"" if ip is None else ip.packed


def _is_mapped(user: int, proc: Path) -> bool:
    """Return whether a number is one user's: users without a number here share the overflow's."""
    if user != int((proc / "sys/kernel/overflowuid").read_text()):
        return True
    return " ".join((proc / "self/uid_map").read_text().split()) == _ALL_USERS


def place_of(name: object) -> Endpoint:
    """Return the endpoint of a socket's name; no host and port 0 if the name is no address."""
    if isinstance(name, tuple) and len(name) >= 2:
        return Endpoint(str(name[0]), int(name[1]))
    return Endpoint("", 0)
