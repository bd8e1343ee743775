"""All directories that a server needs, the users that share them, and their repair."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from zmqtriton import addons
from zmqtriton.environments.users import StubUsers, UserError
from zmqtriton.logs.guard import guarded
from zmqtriton.options import Options
from zmqtriton.reading.model_reading import STUB_DIRECTORY
from zmqtriton.roles import LOCAL_SOCKETS
from zmqtriton.start import listeners
from zmqtriton.store_places import STORES, is_remote
from zmqtriton.supervisor.machine.directories.runtime import (
    DirectoryError,
    RuntimeDirectory,
    admit_group,
    bind_local_services,
    claim,
    create_directory,
)
from zmqtriton.supervisor.machine.processes.children import Children
from zmqtriton_floor.endpoints import local_service_path
from zmqtriton_floor.errors import InvalidArgument

_log = logging.getLogger(__name__)

#: Roles of processes that listen in the directory, at their own socket or an inherited one.
_LISTENING_ROLES = ("broker", *LOCAL_SOCKETS, "tracer")


class Claims(NamedTuple):
    users: StubUsers
    runtime: RuntimeDirectory
    #: Directory for copies of models from stores; None as long as no store is named.
    storage: RuntimeDirectory | None
    #: The bound sockets of local services, by name.
    local_services: Mapping[str, socket.socket]

    def remove(self) -> None:
        self.runtime.remove()
        if self.storage is not None:
            self.storage.remove()


def claim_all(options: Options, predecessor: Path | None = None) -> Claims:
    """Claim all directories. Raises DirectoryError, also for users that cannot be used.

    `predecessor` is the directory of a server that this one takes over from.
    """
    runtime = storage = None
    try:
        users = StubUsers(options.stub_user)
        storage = claim_storage(filter(is_remote, options.model_repository), users.group)
        runtime = claim(options.runtime_directory, users.group, predecessor)
        users.check((STUB_DIRECTORY / "__main__.py", runtime.path))
        local_services = bind_local_services(options, runtime.path, users.group)
    except (DirectoryError, UserError) as error:
        for claimed in (runtime, storage):
            if claimed is not None:
                claimed.remove()
        raise DirectoryError(str(error)) from None
    return Claims(users, runtime, storage, local_services)


def claim_storage(places: Iterable[str], group: int | None = None) -> RuntimeDirectory | None:
    """Claim the directory for copies of models in these stores, and let this group read it.

    None without stores. The claim shows whether stores can be served at all. Raises DirectoryError.
    """
    urls = list(places)
    if not urls:
        return None
    stores = STORES.first_of(addons.offers())
    if stores is None:
        raise DirectoryError("the add-on 'storage' is not installed")
    try:
        parent = stores.claim_parent(urls)
    except InvalidArgument as error:
        raise DirectoryError(error.text) from None
    try:
        claimed = create_directory(Path(parent).absolute())
        if group is not None:
            admit_group(claimed.path, group)
        return claimed
    except OSError as error:
        raise DirectoryError(
            f"models of stores cannot be kept in '{parent}': {error.strerror or error}"
        ) from error


class ControlOpener(Protocol):
    def open_control(self) -> None:
        """Open the socket for zmqtriton-ctl again. Raises OSError."""


class DirectoryMending:
    """Repairs the runtime directory of a running server after it was removed.

    Connections live on without the files of their sockets, but no process can connect any more:
    neither zmqtriton-ctl nor a new stub. So the directory is made again, stubs get new sockets for
    their streams, and the other processes that listen in it are replaced: the death of a broker
    costs no request that had not begun.
    """

    def __init__(
        self,
        options: Options,
        claims: Claims,
        sockets: dict[str, listeners.BoundSocket],
        children: Children,
        serials: Mapping[str, int],
        control: ControlOpener,
    ) -> None:
        """Set up; `serials` has each role's last process."""
        self._options = options
        self._claims = claims
        self._sockets = sockets
        self._children = children
        self._serials = serials
        self._control = control
        self._has_told = False

    def show(self) -> None:
        """Link this server's sockets into the user's runtime directory, for clients."""
        with guarded("to show the server in the runtime directory"):
            self._claims.runtime.show()

    def poll(self) -> None:
        """Repair the directory if it is lost; called once a second."""
        directory = self._claims.runtime
        if not directory.is_lost:
            self._has_told = False
            if directory.is_hidden:
                self.show()
            return
        if not self._has_told:
            self._has_told = True
            _log.error(
                "something has removed the runtime directory '%s' or a part of it; it is made "
                "again. Keep cleaners of temporary directories away from it, or name another place "
                "with --runtime-directory",
                directory.path,
            )
        try:
            directory.restore()
            self._bind_local_services()
            self._children.stream_sockets.renew()
            # last: as long as it is not there, the directory counts as lost
            self._control.open_control()
            directory.show()
        except (OSError, DirectoryError) as error:
            _log.debug("the runtime directory cannot be made again: %s", error)
        else:
            for role in _LISTENING_ROLES:
                if role in self._serials:
                    self._children.kill(
                        self._serials[role], "its socket was removed from the runtime directory"
                    )
            _log.info("the runtime directory '%s' is there again", directory.path)

    def _bind_local_services(self) -> None:
        runtime = self._claims.runtime.path
        for name in LOCAL_SOCKETS:
            with suppress(FileNotFoundError):
                os.unlink(local_service_path(str(runtime), name))
        for name, bound in bind_local_services(
            self._options, runtime, self._claims.users.group
        ).items():
            self._sockets[name].socket.close()
            self._sockets[name] = listeners.BoundSocket(name, bound)
