"""Replaces the instances of a serving generation one by one, after a change of the model's code.

A new instance is started first; when it is ready, one of the old leaves, so there are as many as
before at any time, behind the same queue. If a new one fails, the roll stops: those that are not
replaced yet go on with the code that they have imported. Does no I/O.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from zmqtriton.supervisor.models.blueprint import Blueprint, FinalConfig
from zmqtriton.supervisor.models.instance import Instance
from zmqtriton.supervisor.models.instance_groups import (
    ChangeCallback,
    ChangedGeneration,
    find_failure,
)
from zmqtriton.supervisor.states import InstanceState
from zmqtriton_floor.errors import ZmqTritonError


class NeedsNewGeneration(ZmqTritonError):
    """Raised if the change is more than one of code, so that the model must be loaded anew."""


class RolledGeneration(ChangedGeneration, Protocol):
    """A generation, as a roll needs it."""

    @property
    def final_config(self) -> FinalConfig | None: ...


class Roll:
    def __init__(
        self, generation: RolledGeneration, blueprint: Blueprint, then: ChangeCallback
    ) -> None:
        """Begin the roll. Raises NeedsNewGeneration."""
        self._generation = generation
        self._blueprint = blueprint
        self._then = then
        #: Known once a new instance has completed it, if it is to be completed.
        self._finished = blueprint.final_config
        if self._finished is not None:
            self._require_same_config(self._finished)
        self._old = deque(generation.instances.staying)
        self._count = len(self._old)
        #: The new ones that have replaced others, and the one that is being started.
        self._replacements: list[Instance] = []
        self._starting: Instance | None = None
        self._start_next()

    def is_to_complete_config(self, instance: Instance) -> bool:
        """True if this instance is asked for the configuration, as the first one of a load is."""
        return self._finished is None and instance is self._starting

    def complete_config(self, reply: str) -> None:
        """Take the model's answer about its configuration. Raises ZmqTritonError."""
        finished = self._blueprint.finalize_config(reply)
        self._require_same_config(finished)
        self._finished = finished

    def _require_same_config(self, finished: FinalConfig) -> None:
        served = self._generation.final_config
        if served is None or finished.config != served.config:
            raise NeedsNewGeneration("its configuration has changed, too")

    def _start_next(self) -> None:
        self._starting = None  # the start of an instance has try_complete() called
        (self._starting,) = self._generation.add_instances([self._old[0].slot])

    def try_complete(self) -> bool:
        """Go on with the roll if it can; True if it is over."""
        starting = self._starting
        if starting is None:
            return False
        failed = find_failure([starting]) or self._find_death()
        if failed is not None:
            self.stop(failed.load_failure(self._progress))
            return True
        if starting.state is not InstanceState.READY:
            return False
        self._replacements.append(starting)
        self._generation.remove_instance(self._old.popleft())
        if self._old:
            self._start_next()
            return False
        assert self._finished is not None
        self._generation.replace_blueprint(self._blueprint, self._finished)
        self._then(None)
        return True

    def _find_death(self) -> Instance | None:
        """Return a new instance that has died since it was ready."""
        return next((one for one in self._replacements if one.death_reason), None)

    @property
    def _progress(self) -> str:
        if not self._replacements:
            return ""
        return f" ({len(self._replacements)} of {self._count} instances have the new code)"

    def stop(self, error: ZmqTritonError) -> None:
        """Leave the instances that are not replaced yet."""
        starting, self._starting = self._starting, None
        if starting is not None:
            self._generation.remove_instance(starting)
        self._then(error)
