"""All directories that a server needs, and the users that it shares them with."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from zmqtriton import addons
from zmqtriton.environments.users import StubUsers, UserError
from zmqtriton.options import Options
from zmqtriton.store_places import is_remote
from zmqtriton.supervisor.machine.directories.local_services import bind_local_services
from zmqtriton.supervisor.machine.directories.runtime import (
    DirectoryError,
    RuntimeDirectory,
    admit_group,
    claim,
    create_directory,
)
from zmqtriton.supervisor.machine.model_reading import STUB_DIRECTORY
from zmqtriton_floor import lazy_names
from zmqtriton_floor.errors import InvalidArgument


class Claims(NamedTuple):
    users: StubUsers
    runtime: RuntimeDirectory
    #: For copies of models in stores; None as long as none is named.
    storage: RuntimeDirectory | None
    #: The bound sockets of local services, by name.
    local_services: Mapping[str, socket.socket]

    def remove(self) -> None:
        self.runtime.remove()
        if self.storage is not None:
            self.storage.remove()


def claim_all(options: Options, predecessor: Path | None = None) -> Claims:
    """Claim all directories. Raises DirectoryError, also for users that cannot be.

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
    """Claim the directory for copies of models in these stores, and let this group read.

    None if there are none. Shows whether stores can be served at all.

    Raises DirectoryError.
    """
    urls = list(places)
    if not urls:
        return None
    try:
        parent = lazy_names.load_reference(addons.part("stores")).claim_parent(urls)
    except InvalidArgument as error:
        raise DirectoryError(error.text) from None
    try:
        claimed = create_directory(Path(parent).absolute())
        if group is not None:
            admit_group(claimed.path, group)
        return claimed
    except OSError as error:
        text = f"models of stores cannot be kept in '{parent}': {error.strerror or error}"
        raise DirectoryError(text) from error
