"""Models whose files have changed, in each control mode."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton_floor.reasons import Kind, Reason

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


def change(world: SupervisorHarness, *names: str) -> None:
    for name in names:
        world.models[name] = replace(world.models[name], fingerprint=CHANGED)


def test_a_model_with_a_client_s_configuration_does_not_follow_the_files() -> None:
    world = world_in_mode("explicit")
    world.call("load", {"model": "m", "parameters": {"config": "{}"}})
    change(world, "m")

    assert NOTHING == world.call("reload").result


def test_files_that_cannot_be_loaded_leave_what_serves_and_are_tried_again_by_name() -> None:
    world = world_in_mode("none")
    serving = world.generation("m")
    change(world, "m")
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
    change(world, "m", "n")

    assert NOTHING | {"loaded": ["m"], "failed": {"n": text}} == world.call("reload").result
