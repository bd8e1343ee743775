"""Models that are loaded again when their files change, in each control mode."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.supervisor.world import LOADS, SupervisorHarness, make_blueprint
from zmqtriton_floor.reasons import Kind, Reason
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

    assert [[], ["m"], []] == [watch.observe({"m": "1"}) for _ in range(3)]


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

    assert [[], []] == [watch.observe({"m": "1"}) for _ in range(2)]


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


NOTHING: dict[str, Any] = {
    "loaded": [],
    "unchanged": [],
    "unloaded": [],
    "gone": [],
    "failed": {},
}
CHANGED = "2"


def world_in_mode(mode: str, **policy: Any) -> SupervisorHarness:
    names = ("m",) if mode == "explicit" else ()
    models = [make_blueprint("m"), make_blueprint("n")]
    return SupervisorHarness(*models, control_mode=mode, startup_models=names, **policy).start()


def change_files(world: SupervisorHarness, *names: str) -> None:
    for name in names:
        world.models[name] = replace(world.models[name], fingerprint=CHANGED)


def test_a_model_with_a_client_s_configuration_does_not_follow_the_files() -> None:
    world = world_in_mode("explicit")
    world.call("load", {"model": "m", "parameters": {"config": "{}"}})
    change_files(world, "m")

    assert NOTHING == world.call("reload").result


def test_files_that_cannot_be_loaded_leave_what_serves_and_are_tried_again_by_name() -> None:
    world = world_in_mode("none")
    serving = world.generation("m")
    change_files(world, "m")
    world.stub_behaviours["m"] = "ValueError: no"

    failed = world.call("reload").result
    same = world.call("reload").result
    world.stub_behaviours.clear()
    named = world.call("reload", {"model": "m"}).result

    assert ["m"] == list(failed["failed"])
    assert "ValueError: no" in failed["failed"]["m"]
    assert NOTHING | {"unchanged": ["m", "n"]} == same
    assert NOTHING | {"loaded": ["m"]} == named
    assert world.generation("m") is not serving


def test_models_whose_repository_does_not_answer_fail_and_the_others_are_loaded() -> None:
    world = world_in_mode("none")
    text = "its repository '/two' does not answer"
    world.silent_models = {"n": Reason.of(Kind.REPOSITORY_SILENT, text, repository="/two")}
    change_files(world, "m", "n")

    assert NOTHING | {"loaded": ["m"], "failed": {"n": text}} == world.call("reload").result
