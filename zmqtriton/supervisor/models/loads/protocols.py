"""The model that a load belongs to, as the load sees it. Only types."""

from __future__ import annotations

from typing import Protocol

from zmqtriton.repository.scan import VersionSelection
from zmqtriton.supervisor.models.blueprint import Blueprint
from zmqtriton.supervisor.models.generation import GenerationOwner
from zmqtriton.supervisor.models.loads.load_history import LoadHistory
from zmqtriton.supervisor.models.loads.load_queue import LoadQueue
from zmqtriton.supervisor.models.version import ModelVersion
from zmqtriton_floor import wire


class LoadTarget(GenerationOwner, Protocol):
    """A model, which owns a generation from the moment that it serves."""

    name: str
    versions: dict[int, ModelVersion]
    history: LoadHistory
    loads: LoadQueue
    selection: VersionSelection

    def record_loaded(self, blueprint: Blueprint) -> None:
        """Record that all versions serve; others are not wanted any more."""

    def publish(self, version: ModelVersion) -> None:
        """Tell the frontends of a version."""

    def version_infos(self) -> list[wire.VersionInfo]:
        """Return everything that frontends must know of it."""
