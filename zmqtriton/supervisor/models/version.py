"""One version of a model as clients see it: its state, the reason, and the serving generation.

Owned by its model, which decides; only `transition` writes the state.
"""

from __future__ import annotations

from collections.abc import Mapping

from zmqtriton.supervisor import states
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.states import UNLOADED, ModelState
from zmqtriton_floor import wire
from zmqtriton_floor.reasons import Kind, Reason


def last_load_failed(cause: Reason) -> Reason:
    """Return the reason of a version that still serves, since a load of a newer one failed."""
    return Reason.of(
        Kind.LAST_LOAD_FAILED, f"still served, the last load failed: {cause.text}", cause
    )


class ServedVersion:
    def __init__(self, model: str, number: int) -> None:
        self.model = model
        self.number = number
        self.state = ModelState.UNAVAILABLE
        self.reason: Reason | None = UNLOADED
        #: The generation that serves, or did until it was unloaded or given up.
        self.generation: Generation | None = None

    def transition(self, event: states.Event, reason: Reason | None = None) -> bool:
        """Change the state; True if state or reason differ from before."""
        before = (self.state, self.reason)
        whose = f"model '{self.model}' version {self.number}"
        self.state = states.next_state(states.MODEL_TRANSITIONS, self.state, event, whose)
        if self.state is not ModelState.READY:
            self.reason = reason
        elif isinstance(event, states.GenerationFailed) and reason is not None:
            self.reason = last_load_failed(reason)
        else:
            self.reason = None
        return before != (self.state, self.reason)

    @property
    def is_serving(self) -> bool:
        return self.state is ModelState.READY and self.generation is not None

    @property
    def reported_state(self) -> tuple[ModelState, Reason | None]:
        """Return state and reason for the index: a version that cannot execute now is not ready."""
        if (
            self.is_serving
            and self.generation is not None
            and not self.generation.readiness.ready_count
        ):
            return ModelState.UNAVAILABLE, self.generation.readiness.why_not_ready
        return self.state, self.reason

    def version_info(self) -> wire.VersionInfo:
        """Return the message about the version for frontends.

        While stubs restart, the version is READY without a ready instance: new requests may wait
        for an instance.
        """
        served = self.generation if self.is_serving else None
        if served is None or served.final_config is None:
            state, reason = self.state.value, self.reason
            return wire.VersionInfo(0, self.model, self.number, state, reason, 0, "", b"")
        return wire.VersionInfo(
            served.number,
            self.model,
            self.number,
            self.state.value,
            served.readiness.why_not_ready,
            served.readiness.ready_count,
            served.final_config.config,
            served.final_config.proto,
            int(bool(served.readiness.with_is_ready())),
            served.final_config.labels,
            files=served.final_config.files,
        )


def serving(versions: Mapping[int, ServedVersion], number: int = -1) -> Generation | None:
    """Return the generation of a serving version, or with -1 of the highest; None without one."""
    fitting = [n for n, version in versions.items() if version.is_serving and number in (-1, n)]
    return versions[max(fitting)].generation if fitting else None
