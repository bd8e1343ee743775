"""The socket of the door, bound in the runtime directory for the server's user, or a group, too."""

from __future__ import annotations

import grp
import os
import socket
from contextlib import suppress
from pathlib import Path

from zmqtriton.options import Options
from zmqtriton.supervisor.machine.directories.runtime import DirectoryError, admit_group
from zmqtriton_floor.endpoints import door_path


def bind_door(options: Options, directory: Path, models: int | None) -> socket.socket | None:
    """Bind the socket, on which nobody listens yet; None if it is not wanted.

    `models` is the group that may enter the directory already. Raises DirectoryError.
    """
    if not options.zmq_door:
        return None
    group = _find_group(options.zmq_door_group) if options.zmq_door_group else None
    if group is not None and models not in (None, group):
        raise DirectoryError(
            "--zmq-door-group: one group may enter the runtime directory, and with --stub-user it "
            "is that of the first such user"
        )
    path = door_path(str(directory))
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        bound.bind(path)
        # nobody can connect before it listens
        os.chmod(path, 0o600)
        if group is not None:
            os.chown(path, -1, group)
            os.chmod(path, 0o660)
            admit_group(directory, group)
    except OSError as error:
        bound.close()
        with suppress(FileNotFoundError):
            os.unlink(path)
        text = f"--zmq-door: cannot make the socket '{path}': {error.strerror}"
        raise DirectoryError(text) from error
    return bound


def _find_group(name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        pass
    if name.isascii() and name.isdigit():
        return int(name)
    raise DirectoryError(f"--zmq-door-group: there is no group '{name}'")
