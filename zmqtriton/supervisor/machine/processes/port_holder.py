"""The process that listens on a port, for the error of a server that cannot have it.

Reads /proc; what this user may not see stays unknown.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENING = "0A"
_MAX_COMMAND = 100


def describe_listener(port: int) -> str:
    """Describe the process that listens, as `process 12 (python3 -m http.server)`.

    Describe its user if the process is hidden; return "" if none listens.
    """
    owners = {inode: user for _, inode, user in listening_sockets(port)}
    if not owners:
        return ""
    for pid in _holders(owners):
        with suppress(OSError):
            return f"process {pid} ({_command(pid)})"
    return f"a process of {_user_name(min(owners.values()))}"


def is_listener(port: int, name: str) -> bool:
    """Return whether the process that listens has this name, as far as anybody can see.

    One of this user that is hidden may have it: a server is, if it has capabilities.
    """
    with suppress(OSError):
        owners = {inode: user for _, inode, user in listening_sockets(port)}
        for pid in _holders(owners):
            return _status(pid)["Name"] == name
        return os.geteuid() in owners.values()
    return False


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
    shown = " ".join(words[: next(options, None)]).strip() or _status(pid)["Name"]
    # another user's text must not control the terminal
    shown = "".join(sign if sign.isprintable() else "?" for sign in shown)
    return shown if len(shown) <= _MAX_COMMAND else f"{shown[:_MAX_COMMAND]}..."


def _words(pid: str) -> list[str]:
    return Path("/proc", pid, "cmdline").read_text("utf-8", "replace").rstrip("\0").split("\0")


def _user_name(number: int) -> str:
    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"
