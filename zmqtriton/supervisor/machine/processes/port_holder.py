"""The process that listens on a port, for the error of a server that cannot have it.

Reads /proc; what this user may not see stays unknown.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENING = "0A"
_MAX_COMMAND = 100


def describe_listener(port: int) -> str:
    """Describe the process that listens, as `process 12 (python3 -m http.server)`.

    Describe its user if the process is hidden; return "" if none listens.
    """
    owners = dict(_listeners(port))
    links = {f"socket:[{inode}]" for inode in owners}
    if not links:
        return ""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if not links.isdisjoint(_open_files(pid)):
            with suppress(OSError):
                first = _first_of_program(pid)
                return f"process {first} ({_command(first)})"
    return f"a process of {_user_name(min(owners.values()))}"


def _listeners(port: int) -> Iterator[tuple[str, int]]:
    """Return inode and user of each socket that listens."""
    for table in _TABLES:
        with suppress(OSError):
            for line in Path(table).read_text("ascii").splitlines()[1:]:
                columns = line.split()
                if columns[3] == _LISTENING and int(columns[1].rpartition(":")[2], 16) == port:
                    yield columns[9], int(columns[7])


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
