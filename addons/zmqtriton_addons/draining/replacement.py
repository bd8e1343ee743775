"""Instances of a generation that leave when they have answered what they have, and return anew.

Requests wait meanwhile for the others, or for the first that is back. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zmqtriton.supervisor import (
    Generation,
    GenerationState,
    Instance,
    InstanceState,
    KillRequested,
)
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_floor.reasons import Reason


class Replacement:
    def __init__(self, generation: Generation, instances: Sequence[Instance]) -> None:
        """Let the instances leave."""
        self._generation = generation
        self._leaving = list(instances)
        self._slots = [instance.slot for instance in instances]
        self._new: list[Instance] | None = None
        self._then: Callable[[ZmqTritonError | None], None] | None = None
        for instance in self._leaving:
            generation.remove_instance(instance)

    @property
    def have_left(self) -> bool:
        """True if none of the old instances has a process any more."""
        return not any(instance in self._generation.instances for instance in self._leaving)

    @property
    def is_void(self) -> bool:
        """True if the generation has ended, or does: nothing of it returns."""
        return self._generation.state is not GenerationState.SERVING

    def end_now(self, reason: Reason) -> None:
        """Do not wait for what the old instances execute."""
        for instance in self._leaving:
            if instance.state is InstanceState.DRAINING:
                self._generation.handle(instance, KillRequested(reason))

    def start(self, then: Callable[[ZmqTritonError | None], None]) -> None:
        """Start others once the old ones have left; `then` is called when they are ready."""
        self._then = then

    def advance(self) -> None:
        if self._then is None:
            return
        if self.is_void:
            self._finish(None)
        elif self._new is None and self.have_left:
            # a change of their number may have filled their places
            taken = {one.slot for one in self._generation.instances.staying}
            places = [slot for slot in self._slots if slot not in taken]
            self._new = self._generation.add_instances(places)
        if self._new is not None:
            failed = next((i for i in self._new if i.state is InstanceState.FAILED), None)
            if failed is not None:
                self._finish(failed.load_failure())
            elif all(i.state is InstanceState.READY for i in self._new):
                self._finish(None)

    def _finish(self, error: ZmqTritonError | None) -> None:
        then, self._then = self._then, None
        if then is not None:
            then(error)
