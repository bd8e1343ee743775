"""The directory for copies of models in object stores: private, locked, removed afterwards.

Claimed at start, which also shows whether such repositories can be served at all.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from pathlib import Path

from zmqtriton.options import Options
from zmqtriton.storage.places import is_remote, local_directory, parse_url
from zmqtriton.supervisor.machine.directories.runtime import (
    DirectoryError,
    RuntimeDirectory,
    admit_group,
    create_directory,
)
from zmqtriton_floor.errors import InvalidArgument

_LIBRARY = "obstore"


def claim_storage(options: Options, group: int | None = None) -> RuntimeDirectory | None:
    """Claim the directory and let this group read; None if all repositories are directories.

    Raises DirectoryError.
    """
    urls = [path for path in options.model_repository if is_remote(path)]
    if not urls:
        return None
    if importlib.util.find_spec(_LIBRARY) is None:
        raise DirectoryError(
            f"the model repository '{urls[0]}' needs the package {_LIBRARY}; install it with "
            f"pip install {_LIBRARY}"
        )
    try:
        kinds = [parse_url(url).kind for url in urls]
    except InvalidArgument as error:
        raise DirectoryError(error.text) from None
    parent = local_directory(kinds, os.environ)
    try:
        parent = parent or tempfile.gettempdir()
        claimed = create_directory(Path(parent).absolute())
        if group is not None:
            admit_group(claimed.path, group)
        return claimed
    except OSError as error:
        place = f"in '{parent}'" if parent else "anywhere"
        text = f"models of object stores cannot be kept {place}: {error.strerror or error}"
        raise DirectoryError(text) from error
