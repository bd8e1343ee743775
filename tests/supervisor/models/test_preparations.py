"""Loads that wait: for preparations, and for each other."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tests.supervisor.world import HANGS, LOADS, Call, SupervisorHarness, make_blueprint
from zmqtriton.environments.demand import INTERPRETER, Environment, EnvironmentSpec
from zmqtriton.supervisor.actions import Action, SpawnStub
from zmqtriton.supervisor.models.blueprint import Blueprint
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError

# ------------------------------------------------------------------------ preparations
# A load that needs an environment waits for the process that prepares it, and for nobody else.


READY = Environment("/env/bin/python", "/env", "/support")


def demanding(name: str, fingerprint: str = "1", versions: tuple[int, ...] = (1,)) -> Blueprint:
    demand = EnvironmentSpec(INTERPRETER, python="/bin/x")
    return dataclasses.replace(make_blueprint(name, fingerprint, versions), environment=demand)


class Watching(SupervisorHarness):
    """Keeps how stubs were started."""

    def _perform(self, action: Action) -> None:
        if isinstance(action, SpawnStub):
            self.started.append((action.model, action.environment))
        super()._perform(action)

    started: list[tuple[str, Environment]]


def world(*models: Blueprint, **policy: object) -> Watching:
    watching = Watching(*models, **policy)
    watching.started = []
    watching.start()
    return watching


def answer(watching: SupervisorHarness, model: str, environment: Environment = READY) -> None:
    message = wire.CallResult(0, 0, "", json.dumps(environment))
    watching.receive(watching.preparation_serials[model], message)


def test_stubs_start_when_the_environment_is_ready_and_others_do_not_wait() -> None:
    watched = world(demanding("m", versions=(1, 2)), make_blueprint("other"))

    assert ["other"] == [model for model, _ in watched.started]
    assert ["LOADING", "LOADING", "READY"] == [entry["state"] for entry in watched.index()]
    answer(watched, "m")

    assert [("m", READY)] * 2 == [entry for entry in watched.started if entry[0] == "m"]
    assert {"READY"} == {entry["state"] for entry in watched.index()}


def test_the_status_shows_what_is_being_prepared() -> None:
    watched = world(demanding("m"))

    def preparing() -> list[str]:
        processes = watched.call("status").result["processes"]
        return [p["state"] for p in processes if p["role"] == "environment"]

    assert ["preparing the interpreter /bin/x"] == preparing()
    answer(watched, "m")
    watched.kill_process(watched.preparation_serials["m"], "exited with status 0")
    assert [] == preparing()


def test_the_status_shows_how_far_it_is() -> None:
    watched = world(demanding("m"))
    process = watched.preparation_serials["m"]

    def preparing() -> list[tuple[str, str, float | None]]:
        rows = watched.call("status").result["environments"]
        return [(row["model"], row["step"], row["progress"]) for row in rows]

    assert [("m", "preparing the interpreter /bin/x", None)] == preparing()
    watched.receive(process, wire.PreparationProgress(0, "Reading x", 5, 20))
    assert [("m", "Reading x", 0.25)] == preparing()
    assert {"m": "Reading x: 25 %"} == watched.call("loads").result
    watched.receive(process, wire.PreparationProgress(0, "Installing numpy", 0, 0))
    assert [("m", "Installing numpy", None)] == preparing()
    watched.advance(60.0)
    assert 60.0 <= watched.call("status").result["environments"][0]["seconds"]

    answer(watched, "m")
    watched.receive(process, wire.PreparationProgress(0, "late", 1, 2))
    assert [] == preparing()


def test_a_stub_cannot_say_how_far_it_is() -> None:
    watched = world(demanding("m"), make_blueprint("other"))

    stub = watched.instance("other").serial
    watched.receive(stub, wire.PreparationProgress(0, "Reading x", 5, 20))

    rows = watched.call("status").result["environments"]
    assert ["preparing the interpreter /bin/x"] == [row["step"] for row in rows]


def test_nothing_is_prepared_before_the_broker_could_end_it() -> None:
    """Whoever kills the supervisor at any moment leaves nothing behind that a preparation began."""
    quiet = Watching(demanding("m"))
    quiet.started = []
    quiet.silent = set(range(1000))
    quiet.start()
    broker = quiet.serial("broker")
    quiet.silent = {broker}
    quiet.receive(broker, wire.Synced(quiet.messages_to("broker", wire.Sync)[-1].number))

    assert ["environment"] == [e.role for e in quiet.messages_to("broker", wire.ExpectPeer)][-1:]
    assert [] == quiet.messages_to("environment", wire.Call)
    quiet.receive(broker, wire.Synced(quiet.messages_to("broker", wire.Sync)[-1].number))

    assert ["prepare"] == [call.verb for call in quiet.messages_to("environment", wire.Call)]


def test_a_restart_uses_the_same_environment() -> None:
    watched = world(demanding("m"))
    answer(watched, "m")

    watched.kill_process(watched.instance("m").serial).tick()

    assert [("m", READY)] * 2 == watched.started


def test_what_the_process_says_is_wrong_is_the_reason_of_every_version() -> None:
    watched = world(demanding("m", versions=(1, 2)), exit_on_error=False)

    watched.receive(
        watched.preparation_serials["m"], wire.CallResult(0, InternalError.number, "no uv", "")
    )

    assert [("UNAVAILABLE", "Internal: no uv")] * 2 == [
        (entry["state"], entry["reason"]) for entry in watched.index()
    ]
    assert [] == watched.started


def test_a_process_that_dies_without_an_answer_is_the_reason() -> None:
    watched = world(demanding("m"), exit_on_error=False)

    watched.kill_process(watched.preparation_serials["m"], words="out of memory")

    reason = watched.index()[0]["reason"]
    assert reason == (
        "Internal: the interpreter /bin/x cannot be prepared (killed by SIGKILL): out of memory"
    )


def test_an_unload_ends_the_process_and_the_load() -> None:
    watched = world(demanding("m"), control_mode="explicit")
    load = watched.call("load", {"model": "m"})
    process = watched.preparation_serials["m"]

    watched.call("unload", {"model": "m"})

    assert process not in watched.alive
    assert "load failed for model 'm'" in load.error[1]
    answer(watched, "m")
    assert [] == watched.started


@pytest.mark.parametrize("is_stubborn", [False, True])
def test_versions_that_go_meanwhile_end_the_process_and_the_load(is_stubborn: bool) -> None:
    watched = world(demanding("m", versions=(1, 2)), control_mode="explicit")
    if is_stubborn:
        watched.stubborn.add("environment")
    load = watched.call("load", {"model": "m"})
    process, model = watched.preparation_serials["m"], watched.core.models["m"]

    model.unload_version(model.versions[1])
    watched.run_until_idle()
    assert process in watched.alive, "version 2 needs it"
    model.unload_version(model.versions[2])
    watched.run_until_idle()

    assert is_stubborn == (process in watched.alive), "it removes what is half made"
    assert "version 2 is at UNAVAILABLE state: unloaded" in load.error[1]
    watched.advance(60.0)
    assert process not in watched.alive
    assert [] == watched.started


def test_the_server_can_stop_meanwhile() -> None:
    watched = world(demanding("m"))

    watched.core.stop_requested()
    watched.run_until_idle()

    assert watched.preparation_serials["m"] not in watched.alive


def test_a_model_that_failed_leaves_no_generation_behind() -> None:
    watched = world(make_blueprint("m", problem="no file"), demanding("n"), exit_on_error=False)

    watched.receive(
        watched.preparation_serials["n"], wire.CallResult(0, InternalError.number, "no uv", "")
    )

    assert {} == watched.core.generations


def test_while_a_reload_prepares_the_old_one_serves() -> None:
    watched = world(demanding("m"), control_mode="explicit")
    first = watched.call("load", {"model": "m"})
    answer(watched, "m")
    assert first.result is None
    watched.models["m"] = demanding("m", "2")

    second = watched.call("load", {"model": "m"})

    assert second.answer is None
    assert ["READY"] == [entry["state"] for entry in watched.index()]
    watched.receive(
        watched.preparation_serials["m"], wire.CallResult(0, InternalError.number, "no", "")
    )
    assert "Internal: no" in second.error[1]
    assert ["READY"] == [entry["state"] for entry in watched.index()]


def test_a_stub_cannot_pose_as_such_a_process() -> None:
    watched = world(demanding("m"), make_blueprint("other"))

    watched.receive(watched.instance("other").serial, wire.CallResult(0, 0, "", "[]"))

    assert ["LOADING"] == [e["state"] for e in watched.index() if e["name"] == "m"]


# ------------------------------------------------------------------------ nested loads
# Calls of models to the supervisor, and loads that others wait for.


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
