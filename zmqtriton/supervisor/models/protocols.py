"""What generations and loads ask of the model that they belong to. Only types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from zmqtriton.supervisor.actions import Override
from zmqtriton.supervisor.models.blueprint import Blueprint, Unreadable
from zmqtriton_floor import wire

if TYPE_CHECKING:
    from zmqtriton.supervisor.models.generation import Generation
    from zmqtriton.supervisor.models.loading import Loading
    from zmqtriton.supervisor.models.version import ModelVersion


class Owner(Protocol):
    """Who hears what becomes of a generation."""

    def generation_loaded(self, generation: Generation) -> None:
        """All instances are ready for the first time."""

    def generation_failed(self, generation: Generation, code: int, text: str) -> None:
        """It could not be loaded; it is ending."""

    def generation_changed(self, generation: Generation) -> None:
        """While it serves, an instance has died or come back."""

    def generation_given_up(self, generation: Generation) -> None:
        """While it served, the last of its instances has failed for good."""

    def generation_ended(self, generation: Generation) -> None:
        """No process of it is left."""


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

    def loading_ended(self, loading: Loading) -> None:
        """The next one may begin."""
