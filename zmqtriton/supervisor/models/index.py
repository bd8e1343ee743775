"""The repository index: the models of the repositories and their states. Does no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zmqtriton.supervisor.actions import RepositoryListing
from zmqtriton.supervisor.models.model import Model
from zmqtriton.supervisor.models.model_report import index_entries, unavailable_entry
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.reasons import Kind, Reason


def repository_index(
    listing: RepositoryListing, models: Mapping[str, Model], never_loaded: Reason | None
) -> list[dict[str, Any]]:
    """Return the entries; `never_loaded` is why a model was never tried, where it may be."""
    names = {} if isinstance(listing, ZmqTritonError) else listing
    entries: list[dict[str, Any]] = []
    for name in sorted({*names, *models}):
        problem = names.get(name)
        # what is loaded serves on, whatever becomes of its files
        is_served = is_silent(problem) and name in models
        if problem is not None and not is_served:
            entries.append(unavailable_entry(name, problem))
        elif name in models:
            entries += index_entries(models[name])
        else:
            entry = unavailable_entry(name, never_loaded) if never_loaded else {"name": name}
            entries.append(entry)
    return entries


def is_silent(problem: Reason | None) -> bool:
    """True if nothing is known of a model but that its repository had it, which does not answer."""
    return problem is not None and problem.kind == Kind.REPOSITORY_SILENT
