"""The sockets of local services, bound in the runtime directory for the server's user, or a group.

Such a service is an add-on's: a process of it serves clients on this machine.
"""

from __future__ import annotations

import grp
import os
import socket
from contextlib import suppress
from pathlib import Path

from zmqtriton import addons
from zmqtriton.options import Options
from zmqtriton.supervisor.machine.directories.runtime import DirectoryError, admit_group
from zmqtriton_floor.endpoints import local_service_path


def services_of(options: Options) -> dict[str, addons.LocalService]:
    """Return the services that these options turn on, by name."""
    services = addons.local_services()
    return {name: service for name, service in services.items() if getattr(options, service.switch)}


def bind_local_services(
    options: Options, directory: Path, models: int | None
) -> dict[str, socket.socket]:
    """Bind a socket for each service, by name; nobody listens yet.

    `models` is the group that may enter the directory already. Raises DirectoryError; then nothing
    stays bound.
    """
    sockets: dict[str, socket.socket] = {}
    admitted = models
    try:
        for name, service in services_of(options).items():
            group = _group_of(options, service, admitted)
            admitted = admitted if group is None else group
            sockets[name] = _bind(name, service, directory, group)
    except DirectoryError:
        for bound in sockets.values():
            bound.close()
        raise
    return sockets


def _group_of(options: Options, service: addons.LocalService, admitted: int | None) -> int | None:
    """Return the group whose members may connect; None for the server's own user alone."""
    name: str = service.group and getattr(options, service.group)
    if not name:
        return None
    group = _find_group(_option(service.group), name)
    if admitted not in (None, group):
        raise DirectoryError(
            f"{_option(service.group)}: one group may enter the runtime directory, and with "
            "--stub-user it is that of the first such user"
        )
    return group


def _bind(
    name: str, service: addons.LocalService, directory: Path, group: int | None
) -> socket.socket:
    path = local_service_path(str(directory), name)
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
        text = f"{_option(service.switch)}: cannot make the socket '{path}': {error.strerror}"
        raise DirectoryError(text) from error
    return bound


def _find_group(option: str, name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        pass
    if name.isascii() and name.isdigit():
        return int(name)
    raise DirectoryError(f"{option}: there is no group '{name}'")


def _option(field: str) -> str:
    return f"--{field.replace('_', '-')}"
