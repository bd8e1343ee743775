"""Changes of a serving generation's instances: other groups, or other code.

Other groups: instances that stay are not touched. New instances are started first, and superfluous
ones leave once all of the new ones are ready, so there are never fewer instances than before or
after. If a new one fails, all new ones end and the generation is unchanged.

Other code: the instances are replaced one by one. A new one is started first; when it is ready, one
of the old leaves, so there are as many as before at any time, behind the same queue. If a new one
fails, the roll stops: instances that are not yet replaced continue with the code that they have
imported. Does no I/O.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from zmqtriton.reading.blueprint import Blueprint, FinalConfig, InstanceSlot
from zmqtriton.supervisor.models.instance import InstanceSet, StubPlace
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.states import OVER_STATES, InstanceState
from zmqtriton_floor.errors import ZmqTritonError

#: Claims the rate limiter's resources for these slots. Raises ZmqTritonError if one of them could
#: never execute.
ClaimResources = Callable[[Sequence[InstanceSlot]], None]


class ChangedGeneration(Protocol):
    """A generation, as a change of its instances needs it."""

    @property
    def instances(self) -> InstanceSet: ...

    @property
    def final_config(self) -> FinalConfig | None: ...

    def add_instances(self, places: Sequence[InstanceSlot]) -> list[StubPlace]:
        """Start instances for these slots."""

    def remove_instance(self, instance: StubPlace) -> None:
        """End an instance once it has answered its requests."""

    def replace_blueprint(self, blueprint: Blueprint, finished: FinalConfig) -> None:
        """Use another blueprint for instances that start from now on."""


async def change_groups(
    plan: Plan,
    generation: ChangedGeneration,
    blueprint: Blueprint,
    finished: FinalConfig,
    claim: ClaimResources,
) -> None:
    """Give a generation other groups. Raises ZmqTritonError if it stays unchanged."""
    # one that an earlier change removes may still be answering
    present = generation.instances.staying
    before = [instance.slot for instance in present]
    claim([*before, *finished.slots])
    kept, lacking = match_slots(
        [i for i in present if i.state is not InstanceState.FAILED], finished.slots
    )
    surplus = [i for i in present if i not in kept]
    new = generation.add_instances(lacking)
    await plan.until(lambda: find_failure(new) or all(i.state is InstanceState.READY for i in new))
    failed = find_failure(new)
    if failed is not None:
        for instance in new:
            generation.remove_instance(instance)
        claim(before)
        raise failed.load_failure()
    for instance, place in kept.items():
        instance.slot = place
    generation.replace_blueprint(blueprint, finished)
    for instance in surplus:
        generation.remove_instance(instance)
    claim(finished.slots)


def find_failure(new: Iterable[StubPlace]) -> StubPlace | None:
    """Return a new instance that could not be started, if there is one."""
    return next((one for one in new if one.state in OVER_STATES and one.death_reason), None)


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
    """Raised if more than the code has changed, so that the model needs a new generation."""


class Roll:
    """Other code for the instances of a generation, one by one."""

    def __init__(self, plan: Plan, generation: ChangedGeneration, blueprint: Blueprint) -> None:
        self._plan = plan
        self._generation = generation
        self._blueprint = blueprint
        #: Known once a new instance has completed it, if it is to be completed.
        self._finished = blueprint.final_config
        self._old = deque(generation.instances.staying)
        self._count = len(self._old)
        #: The new ones that have replaced others, and the one that is being started.
        self._replacements: list[StubPlace] = []
        self._starting: StubPlace | None = None
        #: Why the configuration that the new one has completed cannot be used.
        self._problem: ZmqTritonError | None = None

    async def tell(self) -> None:
        """Replace the instances. Raises NeedsNewGeneration, or the error of a failed start."""
        if self._finished is not None:
            self._require_same_config(self._finished)
        while self._old:
            (starting,) = self._generation.add_instances([self._old[0].slot])
            self._starting = starting
            await self._plan.until(partial(self._is_decided, starting))
            problem = self._find_problem(starting)
            if problem is not None:
                # those that are not replaced yet stay
                self._generation.remove_instance(starting)
                raise problem
            self._replacements.append(starting)
            self._generation.remove_instance(self._old.popleft())
        assert self._finished is not None
        self._generation.replace_blueprint(self._blueprint, self._finished)

    def is_to_complete_config(self, instance: StubPlace) -> bool:
        """True if this instance completes the configuration, as a load's first one does."""
        return self._finished is None and instance is self._starting

    def complete_config(self, reply: str) -> bool:
        """Process the model's answer about its configuration; return whether it can be used."""
        try:
            finished = self._blueprint.finalize_config(reply)
            self._require_same_config(finished)
        except ZmqTritonError as error:
            self._problem = error
            return False
        self._finished = finished
        return True

    def _require_same_config(self, finished: FinalConfig) -> None:
        served = self._generation.final_config
        if served is None or finished.config != served.config:
            raise NeedsNewGeneration("its configuration has changed, too")

    def _is_decided(self, starting: StubPlace) -> bool:
        return starting.state is InstanceState.READY or self._find_problem(starting) is not None

    def _find_problem(self, starting: StubPlace) -> ZmqTritonError | None:
        """Return the reason why the roll must stop; a new instance may have died when ready."""
        failed = find_failure([starting]) or next(
            (one for one in self._replacements if one.death_reason), None
        )
        return self._problem or (failed.load_failure(self._progress) if failed else None)

    @property
    def _progress(self) -> str:
        count = len(self._replacements)
        return f" ({count} of {self._count} instances have the new code)" if count else ""
