"""Changes of a serving generation's instances: other groups, or other code.

Other groups: instances that stay are not touched. New instances are started first, and superfluous
ones leave once all of the new ones are ready, so there are never fewer instances than before or
after. If a new one fails, all new ones end and the generation is as it was.

Other code: the instances are replaced one by one. A new one is started first; when it is ready, one
of the old leaves, so there are as many as before at any time, behind the same queue. If a new one
fails, the roll stops: those that are not replaced yet go on with the code that they have imported.
Does no I/O.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from zmqtriton.reading.blueprint import Blueprint, FinalConfig, InstanceSlot
from zmqtriton.supervisor.models.instance import InstanceSet, StubPlace
from zmqtriton.supervisor.states import InstanceState
from zmqtriton.supervisor.story import Promise
from zmqtriton_floor.errors import ZmqTritonError

#: Claims the rate limiter's resources for these slots. Raises ZmqTritonError if one of them could
#: never execute.
ClaimResources = Callable[[Sequence[InstanceSlot]], None]

_OVER = frozenset({InstanceState.FAILED, InstanceState.STOPPED})


class ChangedGeneration(Protocol):
    """A generation, as a change of its instances needs it."""

    @property
    def instances(self) -> InstanceSet: ...

    @property
    def final_config(self) -> FinalConfig | None: ...

    def add_instances(self, places: Sequence[InstanceSlot]) -> list[StubPlace]:
        """Start instances for these slots."""

    def remove_instance(self, instance: StubPlace) -> None:
        """End an instance once it has answered what it has."""

    def replace_blueprint(self, blueprint: Blueprint, finished: FinalConfig) -> None:
        """Use another blueprint for instances that start from now on."""


class InstanceGroupChange:
    def __init__(
        self,
        generation: ChangedGeneration,
        blueprint: Blueprint,
        finished: FinalConfig,
        claim: ClaimResources,
    ) -> None:
        """Begin the change. Raises what `claim` raises, before anything is changed."""
        self._generation = generation
        self._blueprint = blueprint
        self._finished = finished
        self._claim = claim
        self.ended = Promise[None]()
        # one that an earlier change removes may still be answering
        present = generation.instances.staying
        self._before = [instance.slot for instance in present]
        claim([*self._before, *finished.slots])
        usable = [i for i in present if i.state is not InstanceState.FAILED]
        self._kept, lacking = match_slots(usable, finished.slots)
        self._surplus = [i for i in present if i not in self._kept]
        self._new = generation.add_instances(lacking)

    def try_complete(self) -> bool:
        """Complete the change if it can be; True if it is over."""
        failed = find_failure(self._new)
        if failed is not None:
            for instance in self._new:
                self._generation.remove_instance(instance)
            self._claim(self._before)
            self.ended.fail(failed.load_failure())
            return True
        if not all(i.state is InstanceState.READY for i in self._new):
            return False
        for instance, place in self._kept.items():
            instance.slot = place
        self._generation.replace_blueprint(self._blueprint, self._finished)
        for instance in self._surplus:
            self._generation.remove_instance(instance)
        self._claim(self._finished.slots)
        self.ended()
        return True


def find_failure(new: Iterable[StubPlace]) -> StubPlace | None:
    """Return a new instance that could not be started, if there is one."""
    return next((one for one in new if one.state in _OVER and one.death_reason), None)


def match_slots(
    instances: Iterable[StubPlace], places: Iterable[InstanceSlot]
) -> tuple[dict[StubPlace, InstanceSlot], list[InstanceSlot]]:
    """Return the instances that stay, with their slots, and the slots without an instance.

    A slot of the same name comes first; otherwise everything but the name must be equal.
    """
    free, lacking = list(instances), list(places)
    kept: dict[StubPlace, InstanceSlot] = {}
    for is_same in (operator.eq, lambda one, other: one[1:] == other[1:]):
        for place in list(lacking):
            fitting = next((one for one in free if is_same(one.slot, place)), None)
            if fitting is not None:
                kept[fitting] = place
                free.remove(fitting)
                lacking.remove(place)
    return kept, lacking


class NeedsNewGeneration(ZmqTritonError):
    """Raised if the change is more than one of code, so that the model must be loaded anew."""


class Roll:
    def __init__(self, generation: ChangedGeneration, blueprint: Blueprint) -> None:
        """Begin the roll. Raises NeedsNewGeneration."""
        self._generation = generation
        self._blueprint = blueprint
        self.ended = Promise[None]()
        #: Known once a new instance has completed it, if it is to be completed.
        self._finished = blueprint.final_config
        if self._finished is not None:
            self._require_same_config(self._finished)
        self._old = deque(generation.instances.staying)
        self._count = len(self._old)
        #: The new ones that have replaced others, and the one that is being started.
        self._replacements: list[StubPlace] = []
        self._starting: StubPlace | None = None
        self._start_next()

    def is_to_complete_config(self, instance: StubPlace) -> bool:
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
        self.ended()
        return True

    def _find_death(self) -> StubPlace | None:
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
        self.ended.fail(error)
