"""The user at the other end of a TCP connection, if that is on this machine, by the kernel's word.

The kernel's tables have a row for each end of a connection; that of the client has its user. A
client in another network namespace, such as that of a container, has no row here.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

#: In place of a user: the client is elsewhere, or its user has no number here.
UNKNOWN = -1

_PROC = Path("/proc")
_MAPPED_PREFIX = bytes(10) + b"\xff\xff"
#: All users, by their own numbers.
_ALL_USERS = "0 0 4294967295"
#: A row may be passed over while others come and go.
_LOOKS = 3


class Place(NamedTuple):
    """One end of a connection; without a host, whatever that is."""

    host: str
    port: int


async def user_of(client: Place, server: Place) -> int:
    """Return the user of a client that is connected to this server; UNKNOWN if nobody knows.

    A thread looks: with many connections the tables are long.
    """
    return await asyncio.to_thread(find_user, client, server)


def find_user(client: Place, server: Place, proc: Path = _PROC) -> int:
    """Return the user of the client; see user_of()."""
    for _ in range(_LOOKS):
        users = set(_users(client, server, proc))
        if users:
            [user, *others] = users
            return UNKNOWN if others or not _is_mapped(user, proc) else user
    return UNKNOWN


def _users(client: Place, server: Place, proc: Path) -> Iterator[int]:
    for name, is_wide in (("tcp", False), ("tcp6", True)):
        own, other = _written(client, is_wide), _written(server, is_wide)
        if not own:
            continue
        try:
            table = (proc / "net" / name).read_text("ascii")
        except OSError:
            continue
        for line in table.splitlines():
            if own not in line:
                continue
            _, local, remote, _, _, _, _, user, _, inode, *_ = line.split()
            # a connection that its process has closed has no inode, and is root's
            if local == own and remote.endswith(other) and inode != "0":
                yield int(user)


def _written(place: Place, is_wide: bool) -> str:
    """Return a place as the tables write it; "" if it cannot be in one of such addresses."""
    if not place.host:
        return f":{place.port:04X}"
    host = place.host.partition("%")[0]
    try:
        packed = socket.inet_pton(socket.AF_INET, host)
    except OSError:
        try:
            packed = socket.inet_pton(socket.AF_INET6, host)
        except OSError:
            return ""
    if packed.startswith(_MAPPED_PREFIX):
        packed = packed[len(_MAPPED_PREFIX) :]
    if is_wide and len(packed) == 4:
        packed = _MAPPED_PREFIX + packed
    if len(packed) != (16 if is_wide else 4):
        return ""
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    address = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    return f"{address}:{place.port:04X}"


def _is_mapped(user: int, proc: Path) -> bool:
    """Return whether a number is a user's: users without one here share the overflow's."""
    if user != int((proc / "sys/kernel/overflowuid").read_text()):
        return True
    return " ".join((proc / "self/uid_map").read_text().split()) == _ALL_USERS


def place_of(name: object) -> Place:
    """Return the place of a socket's name; one of no host and port 0 if that is no address."""
    if isinstance(name, tuple) and len(name) >= 2:
        return Place(str(name[0]), int(name[1]))
    return Place("", 0)
