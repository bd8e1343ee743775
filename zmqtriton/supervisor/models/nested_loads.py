"""Loads that a model requests while it is being loaded itself, in its initialize.

It waits for them, so its own load slot is lent to others, and a load that would wait for the one
that requests it is refused. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping

from zmqtriton.supervisor.models.context import LoadCallback, LoadSlots
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.states import GenerationState
from zmqtriton_floor.errors import InvalidArgument, ZmqTritonError


class NestedLoads:
    def __init__(self, generations: Mapping[int, Generation], slots: LoadSlots) -> None:
        self._generations = generations
        self._slots = slots
        #: (who asks, its model, the model that it waits for)
        self._waiting: list[tuple[int, str, str]] = []

    def register(self, caller: int, model: str, done: LoadCallback) -> LoadCallback:
        """Register a load; return what to call when it has ended.

        Raises InvalidArgument if it would never end.
        """
        asking = self._loading(caller)
        if asking is None:
            return done
        name = asking.blueprint.name
        if self._waits_for(model, name):
            raise InvalidArgument(
                f"failed to load '{model}', model '{name}' asks for it in its initialize and would "
                "wait for itself"
            )
        self._slots.release(asking.owner)
        entry = (caller, name, model)
        self._waiting.append(entry)

        def ended(error: ZmqTritonError | None) -> None:
            self._waiting.remove(entry)
            done(error)

        return ended

    def _loading(self, serial: int) -> Generation | None:
        for generation in self._generations.values():
            if (
                generation.state is GenerationState.LOADING
                and generation.instances.find(serial) is not None
            ):
                return generation
        return None

    def _waits_for(self, model: str, other: str) -> bool:
        """True if a load of the one ends only after that of the other."""
        reached, queue = {model}, [model]
        while queue and other not in reached:
            asking = queue.pop()
            for caller, name, target in self._waiting:
                if name == asking and target not in reached and self._loading(caller) is not None:
                    reached.add(target)
                    queue.append(target)
        return other in reached
