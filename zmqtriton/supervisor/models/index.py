"""The repository index: the models of the repositories and what is known of them. Does no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zmqtriton.supervisor.actions import RepositoryListing
from zmqtriton.supervisor.models.model import Model
from zmqtriton.supervisor.models.model_report import index_entries
from zmqtriton_floor.errors import ZmqTritonError


def repository_index(
    found: RepositoryListing, models: Mapping[str, Model], never_loaded: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the entries; `never_loaded` makes the entry of a model that was never tried."""
    names = {} if isinstance(found, ZmqTritonError) else found
    entries: list[dict[str, Any]] = []
    for name in sorted({*names, *models}):
        if names.get(name):
            entries.append({"name": name, "state": "UNAVAILABLE", "reason": names[name]})
        elif name in models:
            entries += index_entries(models[name])
        else:
            entries.append({"name": name, **never_loaded})
    return entries
