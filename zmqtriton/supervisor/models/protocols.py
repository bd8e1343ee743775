"""What a load asks of the model that it belongs to. Only types."""

from __future__ import annotations

from typing import Protocol

from zmqtriton.supervisor.actions import Override
from zmqtriton.supervisor.models.blueprint import Blueprint, Unreadable
from zmqtriton.supervisor.models.generation import Owner
from zmqtriton.supervisor.models.version import ModelVersion
from zmqtriton_floor import wire


class Loader(Owner, Protocol):
    """The model owns a generation from the moment that it serves."""

    name: str
    versions: dict[int, ModelVersion]

    def is_current(self, blueprint: Blueprint, override: Override | None) -> bool:
        """Whether exactly this is served already."""

    def was_tried(self, fingerprint: str) -> bool:
        """Whether a load of what is on disk has been tried, well or badly."""

    def take_needs(self, blueprint: Blueprint) -> None:
        """What it calls, as an ensemble or as it says itself, is to be loaded before it."""

    def take_unreadable(self, found: Unreadable) -> None:
        """There is no model to load."""

    def take_tried(self, blueprint: Blueprint, override: Override | None) -> None:
        """A load of this begins."""

    def take_current(self, blueprint: Blueprint) -> None:
        """What is on disk is what serves, whatever was there meanwhile."""

    def take_loaded(self, blueprint: Blueprint) -> None:
        """All versions of it serve; others are not wanted any more."""

    def publish(self, version: ModelVersion) -> None:
        """Tells the frontends of a version."""

    def news(self) -> list[wire.VersionInfo]:
        """All that frontends must know of it."""

    def loading_ended(self, loading: object) -> None:
        """The next one may begin."""
