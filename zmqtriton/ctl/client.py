"""Finds a running server of this user and asks it one thing at a time.

Raises NoServer where there is none, and the server's own error where it says no.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from zmqtriton_floor.errors import from_number
from zmqtriton_floor.lifeline import Lifeline
from zmqtriton_floor.wire import Answer, Call

_SOCKET = "ctl"
_PREFIX = "zmqtriton-"
#: Where systemd has the server's directory.
_SERVICE = Path("/run/zmqtriton")
#: What is meant where the socket says so.
_REASONS = {
    errno.ENOENT: "there is none",
    errno.ECONNREFUSED: "the server has ended",
    errno.EACCES: "it is another user's; ask as that user or as root",
}


class NoServer(Exception):
    """Raised where no server answers; says where it was looked for, and what was found there."""


def find_directories(given: str = "") -> Iterator[Path]:
    """Where a server may be: what was named, else this user's, the newest first, else systemd's."""
    named = given or os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    if named:
        yield Path(named)
        return
    found: list[tuple[float, Path]] = []
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            status = path.lstat()
        except OSError:
            continue  # it ends in this moment
        if status.st_uid == os.geteuid():
            found.append((status.st_mtime, path))
    for _, path in sorted(found, reverse=True):
        yield path
    # Not exists(), which says no where looking is forbidden.
    if os.path.lexists(_SERVICE):
        yield _SERVICE


def connect(given: str = "") -> Client:
    """To the first server that is alive. Raises NoServer."""
    found = []
    for directory in find_directories(given):
        end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        try:
            end.connect(str(directory / _SOCKET))
        except OSError as error:
            end.close()
            reason = _REASONS.get(error.errno or 0, error.strerror)
            found.append(f"{directory} ({reason})")
            continue
        return Client(end, directory)
    where = ", ".join(found) or f"{tempfile.gettempdir()}/{_PREFIX}* or {_SERVICE}"
    raise NoServer(f"no running server found in {where}")


class Client:
    def __init__(self, end: socket.socket, directory: Path) -> None:
        self._line = Lifeline(end)
        self._last_id = 0
        self.directory = directory

    def call(
        self, verb: str, arguments: dict[str, Any] | None = None, timeout_s: float | None = None
    ) -> Any:
        """The result. Raises the server's error, or NoServer if it ends or does not answer."""
        self._last_id += 1
        self._line.send(Call(self._last_id, verb, json.dumps(arguments or {})))
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._line.ended:
            left_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
            if not self._line.wait(left_s):
                raise NoServer(f"the server in {self.directory} does not answer")
            for message, _ in self._line.receive():
                if isinstance(message, Answer) and message.id == self._last_id:
                    if message.code:
                        raise from_number(message.code, message.text)
                    return json.loads(message.result)
        raise NoServer(
            f"the server in {self.directory} has ended the conversation: it is ending, or does not "
            "take commands from this process"
        )

    def close(self) -> None:
        self._line.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
