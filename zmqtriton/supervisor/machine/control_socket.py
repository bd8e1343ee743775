"""The socket of zmqtriton-ctl: its permissions, and the channel of each connection.

Only processes of the same user or of root are served, and never a model's: models have their own
calls and must not command the server that runs them. Processes that a model has started are
descendants of this process even if they have left their session and their parent is dead, since
this process adopts orphans.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
from collections.abc import Set
from pathlib import Path
from typing import Protocol

from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_floor.tool_listener import peer_of

_log = logging.getLogger(__name__)

_BACKLOG = 16


class StubProcesses(Protocol):
    def stub_pids(self) -> Set[int]:
        """Return the pids of stubs; each leads its process group."""


class ControlSocket:
    def __init__(self, path: Path, children: StubProcesses) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self._socket.bind(str(path))
        path.chmod(0o600)
        self._socket.listen(_BACKLOG)
        #: Given up for a moment to turn a caller away when no other descriptor is left.
        self._reserve = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._children = children

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()
        os.close(self._reserve)

    def accept(self) -> tuple[Lifeline, int] | None:
        """Accept a connection; return its socket and the caller's pid, or None if it is refused."""
        try:
            connection, _ = self._socket.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._turn_away()
            return None
        pid, uid = peer_of(connection)
        if self._is_allowed(pid, uid):
            return Lifeline(connection), pid
        connection.close()
        return None

    def _turn_away(self) -> None:
        """Close a connection that cannot be served; it would wake the loop for ever."""
        os.close(self._reserve)
        with contextlib.suppress(OSError):
            self._socket.accept()[0].close()
        self._reserve = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _is_allowed(self, pid: int, uid: int) -> bool:
        reason = "another user's"
        if uid in (0, os.geteuid()):
            try:
                group, ancestors = os.getpgid(pid), _ancestors(pid)
                if os.getpid() not in ancestors and self._children.stub_pids().isdisjoint(
                    {pid, group, *ancestors}
                ):
                    return True
                reason = "this server, or a model of it, has started it"
            except OSError:
                return False  # it has gone already
        _log.warning("refused process %d of user %d on the control socket: %s", pid, uid, reason)
        return False


def _ancestors(pid: int) -> set[int]:
    """Return the pids of a process's ancestors, as far as this user can read them in /proc.

    Raises OSError if the process does not exist.
    """
    ancestors: set[int] = set()
    parent = _parent(pid)
    while parent and parent not in ancestors:
        ancestors.add(parent)
        with contextlib.suppress(OSError):
            parent = _parent(parent)
    return ancestors


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
