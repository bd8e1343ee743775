"""Generations end after their callers."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from zmqtriton.supervisor.models.call_graph import RetirementQueue
from zmqtriton.supervisor.states import GenerationState


class World:
    def __init__(self, **callees: str) -> None:
        """Make a serving generation of each model, which calls the models in its text."""
        self.retired: list[str] = []
        self.generations: dict[int, Any] = {}
        for number, (name, called) in enumerate(callees.items()):
            generation = SimpleNamespace(
                number=number,
                blueprint=SimpleNamespace(name=name),
                callees=set(called.split()),
                state=GenerationState.SERVING,
            )
            generation.retire = lambda each=generation: self._retire(each)
            self.generations[number] = generation
        self.queue = RetirementQueue(self.generations)

    def _retire(self, generation: Any) -> None:
        generation.state = GenerationState.DRAINING
        self.retired.append(generation.blueprint.name)

    def end_all(self) -> None:
        for generation in self.generations.values():
            self.queue.retire_after_callers(generation)
        self.queue.retire_unneeded()

    def ended(self, name: str) -> None:
        (number,) = [n for n, g in self.generations.items() if g.blueprint.name == name]
        del self.generations[number]
        self.queue.retire_unneeded()


def test_whoever_is_called_ends_after_its_callers() -> None:
    world = World(c="", b="c", a="b")

    world.end_all()
    assert ["a"] == world.retired
    world.ended("a")
    assert ["a", "b"] == world.retired
    world.ended("b")
    assert ["a", "b", "c"] == world.retired


def test_those_that_call_each_other_end_together() -> None:
    world = World(a="b", b="a", c="")

    world.end_all()

    assert ["a", "b", "c"] == sorted(world.retired)


def test_callers_that_go_on_are_not_waited_for() -> None:
    world = World(a="b", b="")
    world.queue.retire_after_callers(world.generations[1])

    world.queue.retire_unneeded()

    assert ["b"] == world.retired


def test_a_thousand_models_end_at_once() -> None:
    world = World(**{f"m{number}": "" for number in range(1000)})
    begin_s = time.monotonic()

    world.end_all()

    assert len(world.retired) == 1000
    assert time.monotonic() - begin_s < 20  # it took more than a minute when all looked at all
