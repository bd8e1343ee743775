"""A model as the repository describes it, ready to be built; `ModelReader` makes it.

Plain data, with functions that need no disk (`repositories.blueprints`): the final configuration
once the model was asked, and the model with another number of instances.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zmqtriton.config.parameters import NO_QUOTA, Quota
from zmqtriton.environments.demand import Environment, EnvironmentSpec, GuestHost
from zmqtriton_floor.errors import InvalidArgument, ZmqTritonError
from zmqtriton_floor.reasons import Reason


class InstanceSlot(NamedTuple):
    """The place of an instance in the configuration; its name may repeat on several GPUs."""

    name: str
    kind: str
    device: int
    #: Resources of the rate limiter that it needs; "" for none.
    resources: str = ""
    #: Loaded, but never given a request.
    is_passive: bool = False
    #: Name of the host policy of its process, or "".
    host_policy: str = ""


class LoadOverride(NamedTuple):
    """The files and the configuration that a load request brings along."""

    #: The configuration as JSON, in place of the model's file.
    config: str
    #: The directory to use in place of the model's; "" for the model's own.
    directory: str = ""
    #: The guest that runs the model; None if the server does.
    host: GuestHost | None = None
    #: Directory of these files at the predecessor, which is their source; "" if they are here.
    source: str = ""


@dataclass(frozen=True)
class FinalConfig:
    """A configuration that is served, as JSON and protobuf, with the instances that it asks for."""

    config: str
    proto: bytes
    slots: tuple[InstanceSlot, ...]
    #: The class labels, for frontends.
    labels: str = ""
    #: The template of chats, for frontends.
    files: str = ""

    @property
    def has_sequences(self) -> bool:
        # which most do not even mention
        return "sequence_batching" in self.config and "sequence_batching" in json.loads(self.config)


@dataclass(frozen=True)
class VersionBlueprint:
    """A version directory; `problem` is why it cannot be loaded."""

    path: str
    problem: ZmqTritonError | None = None
    #: Covers everything but the instance groups and the version policy; "" never matches.
    fingerprint_without_instances: str = ""
    #: Covers everything but the version's own files; "" if they cannot be changed by themselves.
    fingerprint_without_code: str = ""
    #: Covers its files.
    contents: str = ""


class BackendCode(NamedTuple):
    """The code of a backend, which runs models that have none of their own."""

    name: str
    file: str
    #: Package that has the file, if it is an add-on's, which the model's Python need not have; else
    #: "".
    package: str = ""


def _never_finished(_: Any) -> FinalConfig:
    raise AssertionError("a blueprint that was just read has no functions yet")


@dataclass(frozen=True)
class EnsembleBlueprint:
    """The needs of an ensemble, which only calls other models."""

    #: Model and version (-1: the newest) of each step.
    steps: tuple[tuple[str, int], ...]
    #: Makes the configuration final from those of the members. Raises ConfigError.
    finalize_config: Callable[[Mapping[str, FinalConfig]], FinalConfig] = _never_finished
    #: `max_inflight_requests`; 0 is no limit.
    max_inflight_requests: int = 0
    #: Makes the error of a step, by its index, that says where the step is defined.
    step_error: Callable[[int, str], ZmqTritonError] = lambda _, text: InvalidArgument(text)

    @property
    def member_names(self) -> tuple[str, ...]:
        """Return the name of each member once."""
        return tuple(dict.fromkeys(model for model, _ in self.steps))


class Scale(NamedTuple):
    """A number of instances in place of the configured one."""

    instances: int
    #: Name of the instance group with this number, for a model with several groups.
    group: str = ""

    @property
    def text(self) -> str:
        number = f"{self.instances} instance{'s' if self.instances != 1 else ''}"
        return f"{number} in group {self.group}" if self.group else number


def _has_one_size(scale: Scale) -> Blueprint:
    raise InvalidArgument(f"the model cannot have {scale.instances} instances")


@dataclass(frozen=True)
class Blueprint:
    """A model as it is on disk now."""

    name: str
    directory: str
    fingerprint: str
    #: Environment that runs it, or the specification of one that is still to be prepared.
    environment: Environment | EnvironmentSpec
    #: Configuration as JSON, before the model is asked.
    config: str
    #: The instance that is asked.
    first_slot: InstanceSlot
    versions: Mapping[int, VersionBlueprint]
    #: Final configuration; None if the model's code may complete it.
    final_config: FinalConfig | None
    #: Makes it final from what the model said. Raises ConfigError.
    finalize_config: Callable[[str], FinalConfig] = _never_finished
    #: The other instances, as far as they are known before.
    other_slots: tuple[InstanceSlot, ...] = ()
    warnings: tuple[str, ...] = ()
    #: The text of the configuration once the server has completed it, or "".
    completed_config_text: str = ""
    #: True if its instances load at the same time and not one after the other.
    can_load_in_parallel: bool = True
    #: Steps of an ensemble; None for a model with processes.
    ensemble: EnsembleBlueprint | None = None
    #: Maximum seconds of the load of an instance; 0 is no limit.
    max_load_s: float = 0.0
    #: "forks" or "threads" of a process that has loaded it; "" if each instance loads it.
    instances: str = ""
    #: Why changed code cannot adopt although it has adopt(); "" if it can, or has none.
    why_no_adopt: str = ""
    #: The pause before an instance is tried again that was given up; 0 if it is not.
    retry_after_s: float = 0.0
    #: Quota of its processes.
    quota: Quota = NO_QUOTA
    #: Values of its parameters for add-ons, by the add-on's name.
    add_on_settings: Mapping[str, Any] = field(default_factory=dict)
    #: The models that it says it calls.
    callees: tuple[str, ...] = ()
    #: The backend whose code runs it; none if it has code of its own.
    backend: BackendCode | None = None
    #: The command line's settings for its backend, as JSON.
    backend_settings: str = "{}"
    #: The instance groups as they are configured; a scale holds as long as they stay.
    configured_groups: str = ""
    #: Makes the same blueprint with another number of instances. Raises InvalidArgument.
    scaled: Callable[[Scale], Blueprint] = _has_one_size
    #: Versions that the version policy alone would choose.
    policy_versions: frozenset[int] = frozenset()
    #: The version policy as text.
    version_policy: str = ""
    #: Settings of a trial, with the `version` that is tried; None without one.
    trial: Any = None

    def is_on_trial(self, number: int) -> bool:
        """True for a version that is tried, whose failure keeps no other version from serving."""
        is_configured = self.trial is not None and self.trial.version == number
        return is_configured or bool(self.policy_versions and number not in self.policy_versions)

    def differs_in_instances_only(self, served: Blueprint, number: int) -> bool:
        """True if a serving version need not be loaded again for this blueprint."""
        new, old = self.versions[number], served.versions[number]
        if new.fingerprint_without_instances:
            return new.fingerprint_without_instances == old.fingerprint_without_instances
        # another version has come or gone, and this one is as it was
        is_same = (self.config, self.environment) == (served.config, served.environment)
        return is_same and self.ensemble is None and "" != new.contents == old.contents


class FileSource(NamedTuple):
    """A store with files of a model, for a model that has only some in its own directory."""

    url: str
    directory: str
    #: The mark of the directory's files.
    fingerprint: str


@dataclass(frozen=True)
class ReadFailure:
    """The reason why a model has no blueprint."""

    reason: Reason
    #: Covers what was found anyway; "" if there is no such directory.
    fingerprint: str = ""
    #: Several repositories have it.
    is_duplicate: bool = False
    #: The source of other files, if only they are missing.
    source: FileSource | None = None
