"""The supervisor's own process: its name, its orphans and its limits."""

from __future__ import annotations

from zmqtriton.supervisor.machine import descriptors
from zmqtriton_floor import prctl


def set_up() -> None:
    prctl.set_name("zmqtriton")
    prctl.hide_memory()
    prctl.adopt_orphans()
    descriptors.raise_limit()


def most_instances() -> int:
    """Return how many instances there may be with the descriptors that this process may have."""
    return descriptors.most_instances(descriptors.limit())
