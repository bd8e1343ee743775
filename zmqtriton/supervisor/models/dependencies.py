"""The models that one model calls, as an ensemble or in its code."""

from __future__ import annotations

from collections.abc import Mapping

from zmqtriton.supervisor.models.load_history import LoadHistory
from zmqtriton.supervisor.models.version import ModelVersion


class Dependencies:
    """The models that one model calls, by name."""

    def __init__(self, versions: Mapping[int, ModelVersion], history: LoadHistory) -> None:
        self._versions = versions
        self._history = history

    @property
    def served_members(self) -> set[str]:
        """The models that the ensemble calls, if the model is one and serves."""
        return {name for version in self._versions.values() for name in members_of(version)}

    @property
    def members(self) -> list[str]:
        """The same, with those of the last blueprint, which may not serve."""
        return sorted({*self._history.members, *self.served_members})

    @property
    def loaded_before(self) -> list[str]:
        """The models that are loaded before this one."""
        return [*self.members, *self._history.callees]

    @property
    def callees(self) -> set[str]:
        """The models that it calls or may call."""
        generations = [version.generation for version in self._versions.values()]
        called = {callee for g in generations if g is not None for callee in g.callees}
        return called | set(self.members)


def members_of(version: ModelVersion) -> tuple[str, ...]:
    """The models that a version calls as an ensemble that serves."""
    generation = version.generation if version.is_serving else None
    ensemble = generation.blueprint.ensemble if generation else None
    return ensemble.member_names if ensemble else ()
