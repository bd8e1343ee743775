"""The results of one model's loads: findings in its repository, and the models that it calls."""

from __future__ import annotations

from collections.abc import Mapping

from zmqtriton.reading.blueprint import BackendCode, Blueprint, LoadOverride, ReadFailure, Scale
from zmqtriton.supervisor.models.version import ServedVersion
from zmqtriton_floor.reasons import Reason

#: Maximum number of polls that try the same files again after a process was lost, because a model
#: that ends its own processes would be tried for ever.
_RETRIES = 3


class LoadHistory:
    """The last attempt to load a model, and the last one that succeeded."""

    def __init__(self) -> None:
        #: Number of attempts to load these files that ended with a dead process, and whether the
        #: last did.
        self._losses = 0
        self._has_lost_process = False
        #: The last load has found what serves, or what the one before it could not load.
        self.is_unchanged = False
        #: The model's directory is gone: the model is forgotten once it has ended, which this alone
        #: does not bring about.
        self.is_directory_gone = False
        #: Reason why the last reading of the model's files failed; None if it did not.
        self.read_problem: Reason | None = None
        #: The last blueprint has no version.
        self.has_no_version = False
        #: The members of the last blueprint, if it is an ensemble.
        self.members: tuple[str, ...] = ()
        #: The backend of the last attempt, unless the model has its own code.
        self.backend: BackendCode | None = None
        #: The callees that the last blueprint names.
        self.callees: tuple[str, ...] = ()
        #: Fingerprints of the serving files and of the last attempt; "" with an override.
        self._served_fingerprint = ""
        self._attempted_fingerprint = ""
        #: The number of instances that it has been given, and the configured groups that it
        #: replaces.
        self.scale: Scale | None = None
        self._scaled_groups = ""
        #: Override of the last attempt.
        self.override: LoadOverride | None = None

    def is_current(
        self,
        blueprint: Blueprint,
        override: LoadOverride | None,
        versions: Mapping[int, ServedVersion],
    ) -> bool:
        """True if exactly this blueprint serves now."""
        return (
            override is None
            and self._served_fingerprint == blueprint.fingerprint
            and bool(blueprint.versions)
            and all(n in versions and versions[n].is_serving for n in blueprint.versions)
        )

    @property
    def is_from_files(self) -> bool:
        """True if the last attempt was to load the repository's files."""
        return self._attempted_fingerprint != "" and self.override is None

    def was_attempted(self, fingerprint: str) -> bool:
        """True if the last attempt was to load these files, successfully or not.

        An attempt that lost a process proves nothing about the files.
        """
        is_void = self._has_lost_process and self._losses <= _RETRIES
        return self._attempted_fingerprint == fingerprint and not is_void

    def record_dependencies(self, blueprint: Blueprint) -> None:
        ensemble = blueprint.ensemble
        self.members = ensemble.member_names if ensemble is not None else ()
        self.callees = blueprint.callees

    def record_read_failure(self, failure: ReadFailure) -> None:
        """Record that the model's files could not be read, or are gone."""
        self.is_unchanged = False
        self._attempted_fingerprint, self.read_problem = failure.fingerprint, failure.reason
        self.is_directory_gone = not failure.fingerprint

    def record_gone(self) -> None:
        """Record a removed directory.

        If the same files return while the model is stopping, they must be loaded again.
        """
        self.is_directory_gone = True
        self._attempted_fingerprint = ""

    def record_attempt(self, blueprint: Blueprint, override: LoadOverride | None) -> None:
        """Record that a load of this blueprint begins."""
        self.is_unchanged = False
        if self._attempted_fingerprint != blueprint.fingerprint:
            self._losses = 0
        self._has_lost_process = False
        self._attempted_fingerprint = blueprint.fingerprint
        self.backend = blueprint.backend
        self.override = override
        self.read_problem = None
        self.is_directory_gone = False
        self.has_no_version = not blueprint.versions

    def record_unchanged(self, blueprint: Blueprint) -> None:
        """Record a reading of the files that serve, even if others were found in between."""
        self._attempted_fingerprint, self.read_problem = blueprint.fingerprint, None
        self.is_unchanged = True

    def record_lost_process(self) -> None:
        """Count an attempt as lost if one of its processes ended without a reason."""
        if not self._has_lost_process:
            self._has_lost_process = True
            self._losses += 1

    def record_loaded(self, blueprint: Blueprint) -> None:
        """Record that all versions of the blueprint serve."""
        self._losses = 0
        self._served_fingerprint = blueprint.fingerprint if self.override is None else ""

    def record_unloaded(self) -> None:
        self._served_fingerprint = ""
        self.read_problem = None
        self.scale = None

    def record_scale(self, scale: Scale | None, blueprint: Blueprint) -> None:
        """Record the number of instances set by a client, in place of the configured groups."""
        self.scale, self._scaled_groups = scale, blueprint.configured_groups

    def keep_scale(self, blueprint: Blueprint) -> Blueprint:
        """Return the blueprint with the number of instances that a client has set.

        If the configuration has other groups since then, the number is dropped.
        """
        if self.scale is not None and blueprint.configured_groups != self._scaled_groups:
            self.scale = None
        return blueprint if self.scale is None else blueprint.scaled(self.scale)


class Dependencies:
    """The models that one model calls, by name."""

    def __init__(self, versions: Mapping[int, ServedVersion], history: LoadHistory) -> None:
        self._versions = versions
        self._history = history

    @property
    def served_members(self) -> set[str]:
        """Return the models that the ensemble calls, if the model is one and serves."""
        return {name for version in self._versions.values() for name in members_of(version)}

    @property
    def members(self) -> list[str]:
        """Return the serving ensemble's models, and the last blueprint's, which may not serve."""
        return sorted({*self._history.members, *self.served_members})

    @property
    def loaded_before(self) -> list[str]:
        """Return the models that are loaded before this one."""
        return [*self.members, *self._history.callees]

    @property
    def callees(self) -> set[str]:
        """Return the models that it calls or may call."""
        called = {
            callee
            for version in self._versions.values()
            if version.generation is not None
            for callee in version.generation.callees
        }
        return called | set(self.members)


def members_of(version: ServedVersion) -> tuple[str, ...]:
    """Return the models that a version calls as a serving ensemble."""
    generation = version.generation if version.is_serving else None
    ensemble = generation.blueprint.ensemble if generation else None
    return ensemble.member_names if ensemble else ()
