"""The number of instances that the server's descriptors allow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.supervisor.world import Call, SupervisorHarness, make_blueprint
from zmqtriton.supervisor.models.blueprint import Blueprint
from zmqtriton.supervisor.models.instance import InstanceSlot
from zmqtriton.supervisor.models.resources import InstanceLimit
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable


def test_all_generations_share_the_limit() -> None:
    limit = InstanceLimit(10)
    limit.claim(1, 6)

    with pytest.raises(Unavailable, match=r"allows 10 instances; there are 6, .* needs 5 more"):
        limit.claim(2, 5)
    limit.claim(2, 4)

    limit.release(1)
    limit.claim(2, 10)


def test_a_load_that_does_not_fit_is_refused_and_nothing_else_ends() -> None:
    world = SupervisorHarness(
        make_blueprint("small"),
        make_blueprint("large", instances=20),
        control_mode="explicit",
        startup_models=("small",),
        max_instances=10,
    ).start()

    call = world.call("load", {"model": "large"})

    assert "allows 10 instances; there are 1, and the load needs 20 more" in call.error[1]
    assert world.latest_version_info("small").state == "READY"


def reloaded_twice() -> tuple[SupervisorHarness, Call]:
    """A server with the limit 10 and a model of 4 instances; its first generation still answers."""

    def model(fingerprint: str) -> Blueprint:
        slots = tuple(InstanceSlot(f"m_0_{number}", "CPU", 0) for number in range(4))
        return replace(make_blueprint("m", fingerprint, instances=4), other_slots=slots[1:])

    world = SupervisorHarness(
        model("1"), control_mode="explicit", startup_models=("m",), max_instances=10
    ).start()
    world.is_busy = True
    world.models["m"] = model("2")
    assert world.call("load", {"model": "m"}).result is None
    world.models["m"] = model("3")
    return world, world.call("load", {"model": "m"})


def test_a_reload_waits_for_the_instances_that_an_earlier_one_ends() -> None:
    world, call = reloaded_twice()
    assert call.answer is None
    [old] = world.messages_to("broker", wire.Retire)

    world.is_busy = False
    world.receive(world.serial("broker"), wire.Drained(old.generation, old.serial))
    world.advance(1.0)

    assert call.answer is not None
    assert call.result is None


def test_a_reload_is_refused_in_the_end_if_they_do_not_end() -> None:
    world, call = reloaded_twice()

    world.advance(60.0)

    assert "allows 10 instances; there are 8, and the load needs 4 more" in call.error[1]
    assert world.latest_version_info("m").state == "READY"


def test_an_unload_ends_a_load_that_waits_for_others() -> None:
    world, call = reloaded_twice()

    unload = world.call("unload", {"model": "m"})
    world.is_busy = False
    for old in world.messages_to("broker", wire.Retire):
        world.receive(world.serial("broker"), wire.Drained(old.generation, old.serial))
    world.advance(60.0)

    assert unload.answer is not None
    assert "unloaded" in call.error[1]
    assert not world.living("stub")
