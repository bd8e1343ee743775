"""The parts of the core that a model and its loads work with."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from zmqtriton.reading.blueprint import Blueprint
from zmqtriton.repository.scan import VersionSelection
from zmqtriton.supervisor.models.ensembles import EnsembleMembers
from zmqtriton.supervisor.models.environments import EnvironmentPreparations
from zmqtriton.supervisor.models.generation import Generation, GenerationOwner
from zmqtriton.supervisor.models.load_history import LoadHistory
from zmqtriton.supervisor.models.order import LoadOrder, LoadSlots, RetirementQueue
from zmqtriton.supervisor.models.readings import ModelReadings
from zmqtriton.supervisor.models.version import ServedVersion
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes.audience import Audience
from zmqtriton.supervisor.server_processes.introductions import Introductions
from zmqtriton.supervisor.settings import Policy
from zmqtriton_floor import wire


class LoadListener(Protocol):
    """Receives news of models: before a load serves, while it serves, and at each load's end."""

    def load_began(self, blueprint: Blueprint) -> None: ...

    def load_succeeded(self, blueprint: Blueprint) -> None: ...

    def load_ended(self, name: str) -> None: ...


class ModelContext(NamedTuple):
    """The rest of the core as every model needs it."""

    plan: Plan
    introductions: Introductions
    audience: Audience
    load_slots: LoadSlots
    #: Generations that were started and have not ended, by number.
    generations: dict[int, Generation]
    ensemble_members: EnsembleMembers
    load_order: LoadOrder
    retirements: RetirementQueue
    preparations: EnvironmentPreparations
    readings: ModelReadings
    listener: LoadListener
    policy: Policy


class LoadedModel(GenerationOwner, Protocol):
    """A model as its loads see it; it owns a generation once the generation serves."""

    name: str
    versions: dict[int, ServedVersion]
    history: LoadHistory
    selection: VersionSelection

    def record_loaded(self, blueprint: Blueprint) -> None:
        """Record that all versions of the blueprint serve, and unload other versions."""

    def publish(self, version: ServedVersion) -> None:
        """Send a version's state to the frontends."""

    def version_infos(self) -> list[wire.VersionInfo]:
        """Return the messages about the model that frontends need."""
