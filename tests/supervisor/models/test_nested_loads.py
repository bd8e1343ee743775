"""Calls of models to the supervisor, and loads that others wait for."""

from __future__ import annotations

from tests.supervisor.world import HANGS, LOADS, Call, SupervisorHarness, make_blueprint
from zmqtriton_floor import wire


def world_of(*models: str, **policy: object) -> SupervisorHarness:
    world = SupervisorHarness(
        *(make_blueprint(name) for name in models), control_mode="explicit", **policy
    )
    world.start()
    world.stub_behaviours = dict.fromkeys(models, HANGS)
    return world


def stub_of(world: SupervisorHarness, model: str) -> int:
    """The serial of its newest, loaded or not."""
    generations = [g for g in world.core.generations.values() if g.blueprint.name == model]
    return generations[-1].instances[0].serial


def asks(world: SupervisorHarness, model: str, for_model: str) -> Call:
    """In its initialize, or later."""
    return world.call_as(stub_of(world, model), "load", {"model": for_model})


def test_a_load_lends_its_place_to_the_one_that_it_waits_for() -> None:
    world = world_of("a", "b", load_slots=1)
    world.stub_behaviours["b"] = LOADS
    outer = world.call("load", {"model": "a"})
    assert outer.answer is None

    inner = asks(world, "a", "b")

    assert None is inner.result
    assert outer.answer is None
    world.receive(stub_of(world, "a"), wire.ConfigCompleted("{}"))
    world.receive(stub_of(world, "a"), wire.ModelLoaded())
    assert None is outer.result


def test_who_would_wait_for_itself_is_refused() -> None:
    world = world_of("a", "b", "c")
    world.call("load", {"model": "a"})
    alone = asks(world, "a", "a")
    asks(world, "a", "b")
    asks(world, "b", "c")

    circle = asks(world, "c", "a")

    assert "model 'a' asks for it in its initialize and would wait for itself" in alone.error[1]
    assert "model 'c' asks for it in its initialize and would wait for itself" in circle.error[1]


def test_one_that_died_waits_for_nobody_any_more() -> None:
    world = world_of("a", "b")
    world.call("load", {"model": "a"})
    asks(world, "a", "b")
    world.kill_process(stub_of(world, "a"))

    assert asks(world, "b", "a").answer is None


def test_a_model_that_is_served_may_load_itself_anew() -> None:
    world = world_of("a")
    world.stub_behaviours["a"] = LOADS
    world.call("load", {"model": "a"})

    assert "unchanged" == asks(world, "a", "a").result


def test_a_model_may_ask_for_models_only() -> None:
    world = world_of("a")
    world.stub_behaviours["a"] = LOADS
    world.call("load", {"model": "a"})
    serial = stub_of(world, "a")

    for verb in ("index", "status", "logs", "register_system"):
        assert f"a model may not call '{verb}'" == world.call_as(serial, verb).error[1]
    assert True is world.call_as(serial, "ready", {"model": "a"}).result


def test_ready_is_what_can_execute_now() -> None:
    world = world_of("a", "b")
    world.stub_behaviours["a"] = LOADS
    world.call("load", {"model": "a"})
    world.call("load", {"model": "b"})

    def is_ready(model: str, version: int = -1) -> bool:
        return world.call("ready", {"model": model, "version": version}).result

    assert [True, True, False] == [is_ready("a", version) for version in (-1, 1, 2)]
    assert [False, False] == [is_ready("b"), is_ready("unknown")]

    world.stub_behaviours["a"] = HANGS
    world.kill_process(stub_of(world, "a"))
    assert not is_ready("a")

    world.call("unload", {"model": "a"})
    assert not is_ready("a")
    assert "must be a text" in world.call("ready", {"model": 3}).error[1]
