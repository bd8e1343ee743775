"""What a load asks of the model that it belongs to. Only types."""

from __future__ import annotations

from typing import Protocol

from zmqtriton.supervisor.actions import LoadOverride
from zmqtriton.supervisor.models.blueprint import Blueprint, ReadFailure
from zmqtriton.supervisor.models.generation import GenerationOwner
from zmqtriton.supervisor.models.version import ModelVersion
from zmqtriton_floor import wire


class LoadTarget(GenerationOwner, Protocol):
    """The model owns a generation from the moment that it serves."""

    name: str
    versions: dict[int, ModelVersion]

    def is_current(self, blueprint: Blueprint, override: LoadOverride | None) -> bool:
        """Whether exactly this is served already."""

    def was_attempted(self, fingerprint: str) -> bool:
        """Whether a load of what is on disk has been tried, well or badly."""

    def set_dependencies(self, blueprint: Blueprint) -> None:
        """What it calls, as an ensemble or as it says itself, is to be loaded before it."""

    def record_read_failure(self, found: ReadFailure) -> None:
        """There is no model to load."""

    def record_attempt(self, blueprint: Blueprint, override: LoadOverride | None) -> None:
        """A load of this begins."""

    def record_unchanged(self, blueprint: Blueprint) -> None:
        """What is on disk is what serves, whatever was there meanwhile."""

    def record_loaded(self, blueprint: Blueprint) -> None:
        """All versions of it serve; others are not wanted any more."""

    def publish(self, version: ModelVersion) -> None:
        """Tells the frontends of a version."""

    def version_infos(self) -> list[wire.VersionInfo]:
        """All that frontends must know of it."""

    def load_ended(self, loading: object) -> None:
        """The next one may begin."""
