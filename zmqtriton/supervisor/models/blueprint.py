"""What the repository says of a model, ready to be built: made by `reading`, used by the core.

Plain data, with one question that needs no disk: what the configuration becomes once the model has
been asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from zmqtriton.environments.demand import Environment, EnvironmentSpec
from zmqtriton.supervisor.models.instance import InstanceSlot
from zmqtriton_floor.errors import InvalidArgument, ZmqTritonError


@dataclass(frozen=True)
class FinalConfig:
    """A configuration that is served: as JSON and protobuf, and the instances that it asks for."""

    config: str
    proto: bytes
    slots: tuple[InstanceSlot, ...]
    #: The names of classes, for frontends.
    labels: str = ""


@dataclass(frozen=True)
class VersionBlueprint:
    """One version directory; `problem` is why it cannot be loaded, or ""."""

    path: str
    problem: str = ""
    #: The code of the problem, a number of ZmqTritonError.
    problem_code: int = 0
    #: Of all but the instance groups and the policy that chose it; "": never the same again.
    fingerprint_without_instances: str = ""


@dataclass(frozen=True)
class EnsembleBlueprint:
    """What a model that only calls others needs."""

    #: Model and version (-1: the newest) of each step.
    steps: tuple[tuple[str, int], ...]
    #: Makes the configuration final of those of the members; raises ConfigError.
    finalize_config: Callable[[Mapping[str, FinalConfig]], FinalConfig]
    #: `max_inflight_requests`; 0: there is no limit.
    max_inflight_requests: int = 0
    #: The error of a step, by its index, that says where the step stands.
    step_error: Callable[[int, str], ZmqTritonError] = lambda _, text: InvalidArgument(text)

    @property
    def member_names(self) -> tuple[str, ...]:
        """Each once."""
        return tuple(dict.fromkeys(model for model, _ in self.steps))


@dataclass(frozen=True)
class Blueprint:
    """One model as it stands on disk now."""

    name: str
    directory: str
    fingerprint: str
    #: What runs it, or what must be prepared for it.
    environment: Environment | EnvironmentSpec
    #: As JSON, before the model is asked.
    config: str
    #: The instance that asks it.
    first_slot: InstanceSlot
    versions: Mapping[int, VersionBlueprint]
    #: Final already, where nothing is auto-completed.
    final_config: FinalConfig | None
    #: Makes it final of what the model said; raises ConfigError.
    finalize_config: Callable[[str], FinalConfig]
    #: Those that are to be there as far as is known before.
    other_slots: tuple[InstanceSlot, ...] = ()
    warnings: tuple[str, ...] = ()
    #: The text of the configuration once the server has completed it, or "".
    completed_config_text: str = ""
    #: Its instances load at the same time, and not one after the other.
    can_load_in_parallel: bool = True
    #: None for a model that has processes.
    ensemble: EnsembleBlueprint | None = None
    #: How long its instances may take to load; 0: for ever.
    max_load_s: float = 0.0
    #: The models that it says it asks.
    callees: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReadFailure:
    """Why there is no blueprint of a model."""

    reason: str
    code: int
    #: Of what was found anyway; "": there is no such directory.
    fingerprint: str = ""
    #: Several repositories have it.
    is_duplicate: bool = False
