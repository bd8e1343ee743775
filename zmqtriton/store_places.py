"""Distinguishes repositories in stores from directories; only the add-on knows the stores."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Protocol

from zmqtriton_floor.settings.offers import Hook

_REMOTE_URL = re.compile(r"(s3|gs|as|hf|oci)://", re.DOTALL)


class Stores(Protocol):
    """A module that knows addresses of repositories."""

    #: Returns the variables with the credentials of these stores.
    credentials: Callable[[Iterable[str]], Iterable[str]]
    #: Returns the directory for copies of these stores. Raises InvalidArgument.
    claim_parent: Callable[[Iterable[str]], str]


#: Copies repositories from an object store, for `--model-repository`.
STORES = Hook[Stores]("repository.stores")


def is_remote(path: str) -> bool:
    """True if a repository is in a store, not a directory."""
    return _REMOTE_URL.match(path) is not None
