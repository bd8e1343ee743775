"""Models whose files have changed, in each control mode."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

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


@pytest.mark.parametrize("mode", ["none", "poll"])
def test_what_has_changed_is_loaded_without_a_name(mode: str) -> None:
    world = world_in_mode(mode)
    before = world.generation("m").number, world.generation("n").number

    unchanged = world.call("reload").result
    change(world, "m")
    done = world.call("reload").result

    assert NOTHING | {"unchanged": ["m", "n"]} == unchanged
    assert NOTHING | {"loaded": ["m"], "unchanged": ["n"]} == done
    assert world.generation("m").number > before[0]
    assert world.generation("n").number == before[1]


def test_a_model_that_is_named_gets_new_processes_though_nothing_has_changed() -> None:
    world = world_in_mode("none")
    before = world.generation("m")

    unchanged = world.call("reload", {"model": "m"}).result
    assert before is world.generation("m")
    done = world.call("reload", {"model": "m", "renews": True}).result

    assert [NOTHING | {"unchanged": ["m"]}, NOTHING | {"loaded": ["m"]}] == [unchanged, done]
    assert before is not world.generation("m")
    assert world.living("stub") == [
        one.serial for m in ("n", "m") for one in world.generation(m).instances
    ]


def test_new_models_are_loaded_and_those_that_are_gone_unloaded() -> None:
    world = world_in_mode("none")
    world.models["new"] = make_blueprint("new")
    del world.models["n"]

    done = world.call("reload").result

    assert NOTHING | {"loaded": ["new"], "unchanged": ["m"], "unloaded": ["n"]} == done
    assert ["m", "new"] == [entry["name"] for entry in world.index()]


def test_in_mode_explicit_it_is_about_what_is_loaded() -> None:
    world = world_in_mode("explicit")
    change(world, "m", "n")

    done = world.call("reload").result
    del world.models["m"]
    gone = world.call("reload").result

    assert NOTHING | {"loaded": ["m"]} == done
    assert NOTHING | {"gone": ["m"]} == gone
    assert "READY" == world.latest_version_info("m").state


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


def test_a_model_by_name_is_loaded_if_it_has_changed() -> None:
    world = world_in_mode("none")

    assert NOTHING | {"unchanged": ["m"]} == world.call("reload", {"model": "m"}).result
    change(world, "m", "n")
    assert NOTHING | {"loaded": ["m"]} == world.call("reload", {"model": "m"}).result


def test_a_server_that_ends_reloads_nothing() -> None:
    world = world_in_mode("none")
    world.stubborn.add("m_0_0")
    world.core.stop()

    assert "Server exiting" == world.call("reload").error[1]


def test_models_whose_repository_does_not_answer_fail_and_the_others_are_loaded() -> None:
    world = world_in_mode("none")
    text = "its repository '/two' does not answer"
    world.silent_models = {"n": Reason.of(Kind.REPOSITORY_SILENT, text, repository="/two")}
    change(world, "m", "n")

    assert NOTHING | {"loaded": ["m"], "failed": {"n": text}} == world.call("reload").result
