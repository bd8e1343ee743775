"""Models that ask others: loaded after them, and ended before them."""

from __future__ import annotations

import dataclasses
import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests.supervisor.models.test_ensembles import ensemble
from tests.supervisor.world import HANGS, LOADS, SupervisorHarness, make_blueprint
from zmqtriton.supervisor.models.blueprint import Blueprint
from zmqtriton.supervisor.models.call_graph import RetirementQueue
from zmqtriton.supervisor.states import GenerationState
from zmqtriton_floor import wire


def caller(name: str, *callees: str) -> Blueprint:
    """Says in BLS_MODELS that it asks these."""
    return dataclasses.replace(make_blueprint(name), callees=callees)


def running(*models: Blueprint) -> SupervisorHarness:
    return SupervisorHarness(*models, control_mode="explicit", startup_models=("*",)).start()


def served(world: SupervisorHarness) -> list[str]:
    """In the order of their loading."""
    return [serve.model for serve in world.messages_to("broker", wire.AddGeneration)]


def ended(world: SupervisorHarness) -> list[str]:
    lines = [line for line in world.log if "successfully unloaded" in line]
    return [line.split("'")[1] for line in lines]


def load(world: SupervisorHarness, model: str) -> None:
    assert world.call("load", {"model": model, "parameters": {}}).result is None


@pytest.mark.row("F14")
def test_what_a_model_says_that_it_asks_is_loaded_before_it() -> None:
    assert ["c", "b", "a"] == served(
        running(caller("a", "b"), caller("b", "c"), make_blueprint("c"))
    )


def test_a_load_brings_along_what_the_model_asks() -> None:
    world = SupervisorHarness(
        caller("a", "b"), make_blueprint("b"), control_mode="explicit"
    ).start()

    load(world, "a")

    assert ["b", "a"] == served(world)


def test_what_cannot_be_loaded_or_is_not_there_holds_up_nobody() -> None:
    world = SupervisorHarness(
        caller("a", "b", "nobody"), make_blueprint("b"), control_mode="explicit", load_slots=1
    )
    world.stub_behaviours["b"] = "broken"
    world.start()

    load(world, "a")

    assert "READY" == world.latest_version_info("a").state
    assert world.has_logged("failed to load 'b'")
    assert world.has_logged("failed to poll model 'nobody'")


@pytest.mark.parametrize(
    "models",
    [
        (caller("a", "a"),),
        (caller("a", "b"), caller("b", "a")),
        (caller("a", "b"), caller("b", "c"), caller("c", "a")),
        (caller("a", "e"), ensemble("e", "a")),
        (ensemble("a", "z"), caller("z", "a")),
    ],
    ids=["itself", "two", "three", "ensemble last", "ensemble first"],
)
def test_models_that_ask_each_other_do_not_wait_for_each_other(
    models: tuple[Blueprint, ...],
) -> None:
    assert {"READY"} == {status for _, _, status in running(*models).tables[0]}


def test_an_unload_ends_a_model_that_waits_for_what_it_asks() -> None:
    world = SupervisorHarness(caller("a", "b"), make_blueprint("b"), control_mode="explicit")
    world.stub_behaviours["b"] = HANGS
    world.start()
    call = world.call("load", {"model": "a", "parameters": {}})
    assert call.answer is None

    assert world.call("unload", {"model": "a"}).result is None

    assert "unloaded" in call.error[1]
    world.stub_behaviours["b"] = LOADS
    assert world.call("unload", {"model": "b"}).result is None
    assert "a" not in served(world)


@pytest.mark.row("F14")
def test_with_dependents_callers_end_before_whom_they_call() -> None:
    world = running(caller("a", "b"), make_blueprint("b"), make_blueprint("other"))
    world.is_busy = True

    assert world.call("unload", {"model": "b", "unload_dependents": True}).result is None

    generations = {m: world.generation(m).number for m in ("a", "b")}
    assert ["UNLOADING"] * 2 == [world.latest_version_info(m).state for m in ("a", "b")]
    assert [generations["a"]] == [r.generation for r in world.messages_to("broker", wire.Retire)]

    world.receive(world.serial("broker"), wire.Drained(generations["a"]))
    world.receive(world.serial("broker"), wire.Drained(generations["b"]))
    assert ["a", "b"] == ended(world)
    assert "READY" == world.latest_version_info("other").state


@pytest.mark.row("F14")
def test_who_has_asked_a_model_depends_on_it() -> None:
    world = running(make_blueprint("a"), make_blueprint("b"))
    world.receive(world.serial("broker"), wire.ModelCalled(world.generation("a").number, "b"))

    assert world.call("unload", {"model": "b", "unload_dependents": True}).result is None

    assert ["a", "b"] == ended(world)


def test_without_dependents_only_the_model_goes() -> None:
    world = running(caller("a", "b"), make_blueprint("b"))

    assert world.call("unload", {"model": "b"}).result is None

    assert ["b"] == ended(world)
    assert "READY" == world.latest_version_info("a").state


def test_at_the_end_of_the_server_callers_end_first() -> None:
    world = running(caller("a", "b"), caller("b", "c"), make_blueprint("c"), ensemble("d", "a"))

    world.core.stop_requested()
    world.run_until_idle()

    assert ["d", "a", "b", "c"] == ended(world)
    assert 0 == world.status


def test_who_call_each_other_end_together() -> None:
    world = running(caller("a", "b"), caller("b", "a"))

    world.core.stop_requested()
    world.run_until_idle()

    assert ["a", "b"] == sorted(ended(world))
    assert 0 == world.status


# ------------------------------------------------------------------- retirement


class Queue:
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
    world = Queue(c="", b="c", a="b")

    world.end_all()
    assert ["a"] == world.retired
    world.ended("a")
    assert ["a", "b"] == world.retired
    world.ended("b")
    assert ["a", "b", "c"] == world.retired


def test_those_that_call_each_other_end_together() -> None:
    world = Queue(a="b", b="a", c="")

    world.end_all()

    assert ["a", "b", "c"] == sorted(world.retired)


def test_callers_that_go_on_are_not_waited_for() -> None:
    world = Queue(a="b", b="")
    world.queue.retire_after_callers(world.generations[1])

    world.queue.retire_unneeded()

    assert ["b"] == world.retired


def test_a_thousand_models_end_at_once() -> None:
    world = Queue(**{f"m{number}": "" for number in range(1000)})
    begin_s = time.monotonic()

    world.end_all()

    assert len(world.retired) == 1000
    assert time.monotonic() - begin_s < 20  # it took more than a minute when all looked at all
