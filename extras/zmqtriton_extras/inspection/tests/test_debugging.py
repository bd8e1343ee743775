"""Who stands where, and which limits rest meanwhile: in the supervisor, without processes."""

from __future__ import annotations

import pytest

from tests.supervisor.world import Call, SupervisorHarness, make_blueprint
from zmqtriton_floor import wire

PLACE = "/models/m/1/model.py:7"


@pytest.fixture
def world() -> SupervisorHarness:
    return SupervisorHarness(make_blueprint("m"), control_mode="none").start()


def stop(world: SupervisorHarness) -> Call:
    """The instance comes to a breakpoint."""
    return world.call_as(world.serial("m_0_0"), "breakpoint", {"place": PLACE})


def test_the_next_broker_learns_which_limits_rest(world: SupervisorHarness) -> None:
    stop(world)
    serial, dead = world.serial("m_0_0"), world.serial("broker")

    world.kill_process(dead).tick()

    new = world.serial("broker")
    assert new != dead
    told = [m for s, m in world.sent if s == new]
    [attached] = [n for n, m in enumerate(told) if isinstance(m, wire.AttachInstance)]
    assert wire.LimitsRest(serial, 1) in told[attached:]


def test_a_limit_that_holds_again_is_not_told_to_the_next_broker(world: SupervisorHarness) -> None:
    stop(world)
    world.call_as(world.serial("m_0_0"), "debug.at", {"is_over": True})

    world.kill_process(world.serial("broker")).tick()

    new = world.serial("broker")
    assert not [m for s, m in world.sent if s == new and isinstance(m, wire.LimitsRest)]


def test_a_breakpoint_in_a_session_stops_in_that_session(world: SupervisorHarness) -> None:
    first = stop(world)
    world.call("debug", {"model": "m"})

    second = stop(world)

    assert ("debug_here", "debug_again") == (first.result["function"], second.result["function"])


def test_a_session_stands_nowhere_while_its_model_runs(world: SupervisorHarness) -> None:
    stop(world)
    world.call("debug", {"model": "m"})
    instance = world.serial("m_0_0")

    places = []
    for news in ({"place": "model.py:8"}, {"place": ""}):
        world.call_as(instance, "debug.at", news)
        places += [row["place"] for row in world.call("status").result["debugged"]]
    world.call_as(instance, "debug.at", {"is_over": True})

    assert ["model.py:8", ""] == places
    assert [] == world.call("status").result["debugged"]
