"""The order of loads and retirements: slots, and the models that call others.

Few models load at a time. A model is loaded after the models that it names in BLS_MODELS, if they
can be loaded. A model that requests a load in its own initialize waits for the load, so its slot is
lent to others; a load that would wait for itself is refused. A generation is retired after its
callers, whose requests may need it. Does no I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.models.load_history import Dependencies
from zmqtriton.supervisor.models.version import ServedVersion
from zmqtriton.supervisor.plan import Plan, PlanTimer
from zmqtriton.supervisor.states import GenerationState
from zmqtriton.supervisor.story import All, Promise
from zmqtriton_floor.errors import InvalidArgument
from zmqtriton_floor.reasons import Reason


class LoadSlots:
    """Limits the number of models that load at a time; the others wait in order.

    A load that takes very long gives its slot back, so that it does not delay the others.
    """

    def __init__(self, plan: Plan, count: int, patience_s: float) -> None:
        self._plan = plan
        self._free = max(1, count)
        self._patience_s = patience_s
        self._waiting: deque[tuple[str, Promise[None]]] = deque()
        #: The models that have a slot, with the timer that takes it from a slow one.
        self._holders: dict[str, PlanTimer] = {}

    def acquire(self, model: str) -> Promise[None]:
        """Return a promise of the model's turn."""
        turn = Promise[None]()
        self._waiting.append((model, turn))
        self._fill()
        return turn

    def release(self, model: str) -> None:
        """Release a slot, or a place among the waiting. May be called again."""
        timer = self._holders.pop(model, None)
        if timer is not None:
            timer.cancel()
            self._free += 1
        else:
            self._waiting = deque(entry for entry in self._waiting if entry[0] != model)
        self._fill()

    def _fill(self) -> None:
        while self._free and self._waiting:
            model, turn = self._waiting.popleft()
            self._free -= 1
            self._holders[model] = self._plan.call_later(
                self._patience_s, partial(self.release, model)
            )
            turn()


class Member(Protocol):
    """A model, as other models that call it need it."""

    dependencies: Dependencies
    versions: dict[int, ServedVersion]

    @property
    def was_explicitly_loaded(self) -> bool:
        """True if it was loaded for its own sake and not only for a caller."""

    @property
    def why_not_loaded(self) -> Reason:
        """Return the reason of the first version that does not serve; the text has all reasons."""

    def load_as_dependency(self, *, again: bool) -> Promise[Any]:
        """Load the model if it is not loaded; resolved once it is loaded, or was tried."""

    def member_changed(self, name: str) -> None:
        """Publish the state of an ensemble again, since a model that it may call has changed."""


class Members(Protocol):
    """All models, as the order of their loads needs them."""

    @property
    def models(self) -> Mapping[str, Member]: ...

    def get_or_create_model(self, name: str) -> Member:
        """Return the model; make it known if it was not."""


#: Maps a model's name to the models that it needs.
_DependenciesOf = Callable[[str], Iterable[str]]


def called(start: str, needs: _DependenciesOf) -> set[str]:
    """Return the models that this one calls, directly or through other models."""
    seen, queue = set[str](), [start]
    while queue:
        new = set(needs(queue.pop())) - seen
        seen |= new
        queue += new
    return seen


def reaches(start: str, target: str, needs: _DependenciesOf) -> bool:
    """True if the first model calls the second, directly or through other models."""
    return target in called(start, needs)


class LoadOrder:
    """Loads the models that a model names before it, without two that wait for each other."""

    def __init__(self, server: Members) -> None:
        self._server = server
        #: The models that wait for their callees, each with what lets it go on.
        self._waiting: dict[str, Promise[None]] = {}

    async def load_callees(self, name: str, called: Iterable[str], *, again: bool) -> None:
        """Load each callee, or try to. Goes on without one that waits for this model."""
        names = sorted(c for c in set(called) - {name} if not reaches(c, name, self._needs))
        go_on = self._waiting[name] = Promise()
        try:
            All(
                self._server.get_or_create_model(each).load_as_dependency(again=again)
                for each in names
            ).at_end(go_on)
            await go_on
        finally:
            if self._waiting.get(name) is go_on:
                del self._waiting[name]

    def break_wait_cycles(self, name: str) -> None:
        """Release the models that this one needs and that wait for it.

        Its callees are known now.
        """
        for waiting, go_on in list(self._waiting.items()):
            is_circle = reaches(waiting, name, self._needs) and reaches(name, waiting, self._needs)
            if waiting != name and is_circle:
                go_on()

    def _needs(self, name: str) -> Iterable[str]:
        model = self._server.models.get(name)
        return model.dependencies.loaded_before if model is not None else ()


class RetirementQueue:
    """Retires generations after their callers have ended."""

    def __init__(self, plan: Plan, generations: Mapping[int, Generation]) -> None:
        self.generations = generations
        #: Each with the promise that frontends send it no more requests, by number.
        self._waiting: dict[int, tuple[Generation, Promise[None]]] = {}
        plan.server.whenever(self._unneeded, self._retire)

    def retire_after_callers(
        self,
        generation: Generation,
        frontends_know: Promise[None] | None = None,
    ) -> None:
        """Retire a generation once frontends know, and its callers have ended.

        Only callers that are also to end are waited for.
        """
        self._waiting[generation.number] = generation, frontends_know or Promise.kept(None)

    def _retire(self, unneeded: Iterable[Generation]) -> None:
        for generation in unneeded:
            del self._waiting[generation.number]
            generation.retire()

    def _unneeded(self) -> list[Generation]:
        reached = self._reached() if self._waiting else {}
        return [
            generation
            for generation, frontends_know in self._waiting.values()
            if frontends_know.is_over and not _is_needed(generation, reached)
        ]

    def _reached(self) -> dict[str, set[str]]:
        """Return the models that each stopping model calls, directly or through other models."""
        callees: dict[str, set[str]] = {}
        ending = set[str]()
        for generation in self.generations.values():
            if generation.callees:
                name = generation.blueprint.name
                callees.setdefault(name, set()).update(generation.callees)
                if self._is_ending(generation):
                    ending.add(name)
        return {name: called(name, lambda each: callees.get(each, ())) for name in ending}

    def _is_ending(self, generation: Generation) -> bool:
        is_ending = generation.state in (GenerationState.DRAINING, GenerationState.STOPPING)
        return is_ending or generation.number in self._waiting


def _is_needed(generation: Generation, reached: Mapping[str, set[str]]) -> bool:
    """True if an ending generation calls it; generations that call each other end together."""
    name = generation.blueprint.name
    own = reached.get(name, ())
    return any(
        name in callees and caller != name and caller not in own
        for caller, callees in reached.items()
    )


class NestedLoads:
    def __init__(self, generations: Mapping[int, Generation], slots: LoadSlots) -> None:
        self._generations = generations
        self._slots = slots
        #: (who asks, its model, the model that it waits for)
        self._waiting: list[tuple[int, str, str]] = []

    @contextmanager
    def waiting(self, caller: int, model: str) -> Iterator[None]:
        """Record who waits for a load. Raises InvalidArgument if the wait would never end."""
        asking = self._loading(caller)
        if asking is None:
            yield
            return
        name = asking.blueprint.name
        if self._waits_for(model, name):
            raise InvalidArgument(
                f"failed to load '{model}', model '{name}' asks for it in its initialize and would "
                "wait for itself: call it in execute"
            )
        self._slots.release(name)
        entry = (caller, name, model)
        self._waiting.append(entry)
        try:
            yield
        finally:
            self._waiting.remove(entry)

    def _loading(self, serial: int) -> Generation | None:
        generations = self._generations.values()
        return next((g for g in generations if g.is_loading and g.instances.find(serial)), None)

    def _waits_for(self, model: str, other: str) -> bool:
        """True if a load of the one model ends only after a load of the other."""

        def awaited(asking: str) -> Iterator[str]:
            for caller, name, target in self._waiting:
                if name == asking and self._loading(caller) is not None:
                    yield target

        return model == other or reaches(model, other, awaited)
