"""Models that are loaded again when their files change, in a world without files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.supervisor.world import LOADS, SupervisorHarness, make_blueprint
from zmqtriton_standard.reloading.reloading import LOOK_S, SETTLE_S, FileWatch

#: Until a change is seen, and seen to be complete.
_NOTICED_S = LOOK_S + 2 * SETTLE_S


def serve(*names: str, **policy: Any) -> SupervisorHarness:
    models = [make_blueprint(name) for name in names]
    return SupervisorHarness(*models, reload=True, **policy).start().advance(2 * _NOTICED_S)


def change(world: SupervisorHarness, fingerprint: str, model: str = "m") -> SupervisorHarness:
    world.models[model] = replace(world.models[model], fingerprint=fingerprint)
    return world.advance(_NOTICED_S)


def loads(world: SupervisorHarness, model: str = "m") -> int:
    return world.log.count(f"I loading: {model}:1")


def test_a_broken_save_leaves_what_serves_and_says_why_last() -> None:
    world = serve("m")
    world.stub_behaviours["m"] = "SyntaxError: no"

    change(world, "broken")
    world.advance(60.0)

    assert 2 == loads(world), "it was tried once"
    assert "READY" == world.latest_version_info("m").state
    assert "1" == world.generation("m").blueprint.fingerprint
    assert "SyntaxError: no" in [line for line in world.log if "process" not in line][-1]
    world.stub_behaviours["m"] = LOADS
    change(world, "good")
    assert "good" == world.generation("m").blueprint.fingerprint


def test_what_a_request_has_brought_along_stays() -> None:
    world = serve("m", control_mode="explicit", startup_models=("m",))
    world.call("load", {"model": "m", "parameters": {"config": '{"backend":"python"}'}})

    change(world, "2")

    assert [] == list(world.watched)
    assert 2 == loads(world)


# ------------------------------------------------------------------- file watch


def watching(*fingerprints: str) -> FileWatch:
    """A watch that has reported the model `m` with the last of these."""
    watch = FileWatch()
    for fingerprint in fingerprints:
        watch.observe({"m": fingerprint})
        watch.observe({"m": fingerprint})
    return watch


def test_what_is_new_is_reported_once_it_stays_the_same() -> None:
    watch = FileWatch()

    assert [] == watch.observe({"m": "1"})
    assert ["m"] == watch.observe({"m": "1"})
    assert [] == watch.observe({"m": "1"})


def test_a_change_that_goes_on_is_waited_for() -> None:
    watch = watching("1")

    assert [] == watch.observe({"m": "half"})
    assert watch.is_changing
    assert [] == watch.observe({"m": "whole"})
    assert ["m"] == watch.observe({"m": "whole"})
    assert not watch.is_changing


def test_what_is_as_before_again_has_not_changed() -> None:
    watch = watching("1")

    watch.observe({"m": "renamed away"})

    assert [] == watch.observe({"m": "1"})
    assert [] == watch.observe({"m": "1"})


def test_one_model_does_not_wait_for_another() -> None:
    watch = watching("1")

    watch.observe({"m": "2", "n": "1"})

    assert ["m"] == watch.observe({"m": "2", "n": "2"})
    assert ["n"] == watch.observe({"m": "2", "n": "2"})


def test_what_was_not_looked_at_meanwhile_is_new_again() -> None:
    watch = watching("1")
    watch.observe({})

    watch.observe({"m": "1"})

    assert ["m"] == watch.observe({"m": "1"})
