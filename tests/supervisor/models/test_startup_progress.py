"""The lines about a start that takes long."""

from __future__ import annotations

import dataclasses

from tests.supervisor.models.test_preparations import answer, demanding
from tests.supervisor.world import HANGS, SupervisorHarness, make_blueprint
from zmqtriton.supervisor.models.blueprint import Blueprint
from zmqtriton_floor import wire


def starting(*models: Blueprint, **policy: object) -> SupervisorHarness:
    world = SupervisorHarness(*models, **policy)
    world.stub_behaviours["slow"] = HANGS
    return world.start()


def progress_lines(world: SupervisorHarness) -> list[str]:
    return [line for line in world.log if line.startswith("I still starting ")]


def test_a_long_start_says_every_few_seconds_what_it_waits_for() -> None:
    world = starting(make_blueprint("good"), make_blueprint("slow"), demanding("x"))

    world.advance(1.0)
    assert [] == progress_lines(world)
    world.advance(2.0)
    world.receive(world.preparation_serials["x"], wire.PreparationProgress(0, "Reading x", 5, 20))
    world.advance(5.0)
    answer(world, "x")
    world.advance(5.0)

    slow = "slow (its code is imported and initialized)"
    assert [
        f"I still starting after 2 s, waiting for {slow}, x (preparing the interpreter /bin/x)",
        f"I still starting after 7 s, waiting for {slow}, x (Reading x: 25 %)",
        f"I still starting after 12 s, waiting for {slow}",
    ] == progress_lines(world)


def test_models_that_wait_for_their_turn_come_last() -> None:
    caller = dataclasses.replace(make_blueprint("caller"), callees=("slow",))
    world = starting(caller, make_blueprint("slow"), make_blueprint("zebra"), load_slots=1)

    world.advance(4.0)

    assert [
        "I still starting after 2 s, waiting for caller (the models that it calls are loaded "
        "first), slow (its code is imported and initialized), zebra (it waits until others are "
        "loaded)"
    ] == progress_lines(world)


def test_after_the_start_or_its_end_nothing_is_said() -> None:
    ready = starting(make_blueprint("good"))
    stopped = starting(make_blueprint("slow"))
    stopped.core.stop_requested()

    for world in (ready, stopped):
        world.advance(60.0)

        assert [] == progress_lines(world)
