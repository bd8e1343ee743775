"""Which models call which, beyond ensembles: by BLS_MODELS, and by observed calls.

A model is loaded after those that it names, if they can be loaded. A generation that is to end does
so after those that call it, whose requests may need it. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Protocol

from zmqtriton.supervisor.models.dependencies import Dependencies
from zmqtriton.supervisor.models.generation import Generation
from zmqtriton.supervisor.states import GenerationState

#: Maps a model's name to the models that it needs.
_DependenciesOf = Callable[[str], Iterable[str]]


class Callee(Protocol):
    """A model, as far as the load order needs it."""

    dependencies: Dependencies

    def load_as_dependency(self, then: Callable[[], None], *, again: bool) -> None:
        """Call `then` once the model was loaded, or tried."""


def reaches(start: str, target: str, needs: _DependenciesOf) -> bool:
    """True if the one calls the other, perhaps through others."""
    seen, queue = {start}, [start]
    while queue:
        for name in needs(queue.pop()):
            if name == target:
                return True
            if name not in seen:
                seen.add(name)
                queue.append(name)
    return False


class LoadOrder:
    """Loads what a model names before the model, without letting two wait for each other."""

    def __init__(self, models: Mapping[str, Callee], make: Callable[[str], Callee]) -> None:
        self._models = models
        self._make = make
        #: By model, what to call when those who wait need not wait any more.
        self._waiting: dict[str, Callable[[], None]] = {}

    def load_callees(
        self, name: str, callees: Iterable[str], then: Callable[[], None], *, again: bool
    ) -> None:
        """Call `then` when each callee was loaded, or tried."""
        left = {c for c in callees if c != name and not reaches(c, name, self._needs)}

        def go_on() -> None:
            if self._waiting.get(name) is go_on:
                del self._waiting[name]
                then()

        def tried(callee: str) -> None:
            left.discard(callee)
            if not left:
                go_on()

        self._waiting[name] = go_on
        for callee in sorted(left):
            self._make(callee).load_as_dependency(partial(tried, callee), again=again)
        if not left:
            go_on()

    def break_wait_cycles(self, name: str) -> None:
        """Release the models that this one needs and that wait for it.

        Its callees are known now.
        """
        for waiting, go_on in list(self._waiting.items()):
            is_circle = reaches(waiting, name, self._needs) and reaches(name, waiting, self._needs)
            if waiting != name and is_circle:
                go_on()

    def _needs(self, name: str) -> Iterable[str]:
        model = self._models.get(name)
        return model.dependencies.loaded_before if model is not None else ()


class RetirementQueue:
    """Generations that are to end after their callers. `proceed` is called after each event."""

    def __init__(self, generations: Mapping[int, Generation]) -> None:
        self.generations = generations
        self._waiting: dict[int, Generation] = {}

    def retire_after_callers(self, generation: Generation) -> None:
        """Retire a generation once those that call it have ended.

        Only callers that are to end, too, are waited for.
        """
        self._waiting[generation.number] = generation

    def retire_unneeded(self) -> None:
        while self._waiting:
            reached = self._reached()
            ready = [g for g in self._waiting.values() if not _is_needed(g, reached)]
            if not ready:
                return
            for generation in ready:
                del self._waiting[generation.number]
                generation.retire()

    def _reached(self) -> dict[str, set[str]]:
        """Return what each model that is to end calls, also through others; most call none."""
        callees: dict[str, set[str]] = {}
        ending = set[str]()
        for generation in self.generations.values():
            if generation.callees:
                name = generation.blueprint.name
                callees.setdefault(name, set()).update(generation.callees)
                if self._is_ending(generation):
                    ending.add(name)
        return {name: _closure(name, callees) for name in ending}

    def _is_ending(self, generation: Generation) -> bool:
        is_ending = generation.state in (GenerationState.DRAINING, GenerationState.STOPPING)
        return is_ending or generation.number in self._waiting


def _is_needed(generation: Generation, reached: Mapping[str, set[str]]) -> bool:
    """True if one that is to end calls it; generations that call each other end together."""
    name = generation.blueprint.name
    own = reached.get(name, ())
    return any(
        name in callees and caller != name and caller not in own
        for caller, callees in reached.items()
    )


def _closure(start: str, callees: Mapping[str, set[str]]) -> set[str]:
    seen, queue = set[str](), [start]
    while queue:
        new = callees.get(queue.pop(), set()) - seen
        seen |= new
        queue += new
    return seen
