"""A model that wakes up waits until others have made room, as a load does."""

from __future__ import annotations

import pytest

from tests.standard.on_demand.test_on_demand import MIB, history, stat, states, use, want
from tests.standard.on_demand.test_sleeping import ASLEEP, World
from tests.supervisor.world import Call
from zmqtriton_floor.errors import Unavailable
from zmqtriton_standard.on_demand.evictions import GRACE_S
from zmqtriton_standard.on_demand.loader import (
    MAX_CHECK_INTERVAL_S,
    SLEEP_WITHIN_S,
)


def sleeping(on_gpu: int | None = None) -> World:
    """A world in which 'a' sleeps, so that there was room for 'b', which serves."""
    world = World("a", "b", "c", budget=70, on_gpu=on_gpu)
    world.load("a")
    want(world.server, "b")
    world.answer("a", world.questions()["a"], ASLEEP)
    use(world.server, "b")
    world.server.advance(GRACE_S)
    return world


def wake(world: World, name: str) -> Call:
    """Have a model ask for room, which has a request."""
    others = [entry for entry in world.server.model_stats if entry["name"] != name]
    world.server.model_stats = [*others, stat(name, world.server.now_s, unanswered=1)]
    return world.server.call("room", {"model": name})


@pytest.mark.row("L07")
@pytest.mark.parametrize("gpu", [None, 1])
def test_a_model_wakes_up_when_another_one_sleeps(gpu: int | None) -> None:
    world = sleeping(on_gpu=gpu)

    first, second = wake(world, "a"), wake(world, "a")

    questions = world.questions()
    assert ["b"] == list(questions)
    assert (None, None) == (first.answer, second.answer)
    world.answer("b", questions["b"], ASLEEP)
    assert (True, True) == (first.result, second.result)
    assert "put to sleep to make room for 'a'" == history(world.server, "b")["event"]
    assert {"a": "READY", "b": "READY"} == {n: states(world.server)[n] for n in "ab"}


def test_a_model_that_was_loaded_by_name_wakes_up_at_once() -> None:
    world = sleeping()
    world.server.call("load", {"model": "a"})
    world.resize("b", 80)

    assert wake(world, "a").result is True

    assert {} == world.questions()


def test_one_of_several_instances_does_not_wait_for_the_sleep_of_the_others() -> None:
    world = sleeping()
    world.resize("b", 20)
    assert wake(world, "a").result is True
    world.resize("a", 80)
    world.server.model_stats = [stat("a", world.server.now_s), stat("b", world.server.now_s)]
    world.server.advance(GRACE_S + 2 * MAX_CHECK_INTERVAL_S)
    assert "a" in world.questions()

    assert wake(world, "a").result is True


def test_who_waits_for_room_hears_that_the_server_stops_or_the_model_has_gone() -> None:
    world = sleeping()
    call = wake(world, "a")
    world.questions()

    world.server.core.stop_requested()
    world.server.run_until_idle()
    assert Unavailable.number == call.error[0]
    assert Unavailable.number == wake(world, "a").error[0]

    world = sleeping()
    call = wake(world, "a")
    world.server.call("unload", {"model": "a"})
    world.server.advance(SLEEP_WITHIN_S)
    assert call.result is True


def test_the_memory_of_a_model_awake_is_measured_again() -> None:
    world = sleeping()
    world.resize("b", 20)
    assert wake(world, "a").result is True
    world.resize("a", 30)
    assert 60 * MIB == world.server.call("status").result["on_demand"]["used_bytes"]

    world.server.model_stats = [stat("a", world.server.now_s), stat("b")]
    world.server.advance(GRACE_S + 2 * MAX_CHECK_INTERVAL_S)

    assert 50 * MIB == world.server.call("status").result["on_demand"]["used_bytes"]
