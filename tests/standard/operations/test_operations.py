"""Operations on models: whom they concern, by which signal, and what begins anew."""

from __future__ import annotations

import pytest

from tests.supervisor.world import HANGS, SupervisorHarness, make_blueprint
from zmqtriton_floor.errors import Unavailable


@pytest.fixture
def world() -> SupervisorHarness:
    return SupervisorHarness(make_blueprint("m"), make_blueprint("n"), control_mode="none").start()


def test_the_stubs_of_one_model_are_asked_where_they_are(world: SupervisorHarness) -> None:
    stub = world.instance("m")

    answer = world.call("stacks", {"model": "m"}).result

    row = {"instance": "m_0_0", "pid": stub.pid, "state": "READY", "lines": ["stack of m_0_0"]}
    assert [row] == answer
    assert [] == world.call("stacks", {"model": "nobody"}).result
    assert world.has_logged("stacks 'm' for an unknown client")


def test_who_is_dead_is_not_asked_where_he_is(world: SupervisorHarness) -> None:
    world.kill_process(world.serial("m_0_0"))

    assert [] == world.call("stacks", {"model": "m"}).result


def test_one_instance_is_restarted_and_its_neighbour_goes_on() -> None:
    world = SupervisorHarness(make_blueprint("m", instances=2), control_mode="none").start()
    hung, well = world.serial("m_0_0"), world.serial("m_0_1")

    unknown = world.call("restart", {"model": "m", "instance": "m_1"})
    done = world.call("restart", {"model": "m", "instance": "m_0_0"})

    assert "model 'm' has no instance 'm_1'; it has m_0_0, m_0_1" in unknown.error[1]
    assert 1 == done.result
    world.advance(1.0)
    assert hung not in world.alive
    assert world.serial("m_0_0") != hung
    assert world.serial("m_0_1") == well


def test_a_model_that_was_given_up_is_loaded(world: SupervisorHarness) -> None:
    world.stub_behaviours["m"] = "ValueError: no"
    world.kill_process(world.serial("m_0_0")).advance(600.0)
    assert [("m", "UNAVAILABLE")] == [(e["name"], e["state"]) for e in world.index()[:1]]

    refused = world.call("restart", {"model": "m"})
    del world.stub_behaviours["m"]
    done = world.call("restart", {"model": "m"})

    assert "ValueError: no" in refused.error[1]
    assert 0 == done.result
    assert [("m", "READY")] == [(e["name"], e["state"]) for e in world.index()[:1]]


def test_a_load_is_begun_again_without_waiting_for_it() -> None:
    world = SupervisorHarness(make_blueprint("m"), control_mode="explicit").start()
    world.stub_behaviours["m"] = HANGS
    hanging = world.call("load", {"model": "m"})

    assert 0 == world.call("restart", {"model": "m", "wait": False}).result
    assert "it was restarted by an operator" in hanging.error[1]
    assert [("m", "LOADING")] == [(e["name"], e["state"]) for e in world.index()]


def test_nothing_is_restarted_while_the_server_ends(world: SupervisorHarness) -> None:
    world.core.stop_requested()

    assert (Unavailable.number, "Server exiting") == world.call("restart", {"model": "m"}).error
