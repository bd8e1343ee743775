"""Models that need others: ensembles, and models that call."""

from __future__ import annotations

import dataclasses
import time
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from tests.floor.reasons import text_of
from tests.supervisor.world import LOADS, SupervisorHarness, make_blueprint, make_ensemble
from zmqtriton.reading.blueprint import Blueprint
from zmqtriton.supervisor.models.ensembles import MAX_DEPTH
from zmqtriton.supervisor.models.model_report import troubles
from zmqtriton.supervisor.models.order import RetirementQueue
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.states import GenerationState
from zmqtriton_floor import wire

# --------------------------------------------------------------------------------------- ensembles
# Ensembles: loaded after their members, and as ready as they are.


LOAD_E = {"model": "e", "parameters": {}}


def explicit(*models: Blueprint, **policy: object) -> SupervisorHarness:
    return SupervisorHarness(*models, control_mode="explicit", **policy).start()


@pytest.mark.row("E52")
def test_an_ensemble_is_loaded_after_its_members_and_has_no_process() -> None:
    world = SupervisorHarness(make_ensemble("e", "z"), make_blueprint("z")).start()

    assert [[("e", "1", "READY"), ("z", "1", "READY")]] == world.tables
    assert ["I successfully loaded 'z'", "I successfully loaded 'e'"] == [
        line for line in world.log if "successfully loaded" in line
    ]
    assert ["z", "e"] == [serve.model for serve in world.messages_to("broker", wire.AddGeneration)]
    assert 1 == len(world.living("stub"))
    assert (1, '{"name": "e"}') == (
        world.latest_version_info("e").ready_instances,
        world.latest_version_info("e").config,
    )


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ((), "failed to poll model 'm': model not found in any model repository."),
        ((make_blueprint("m"),), "version 1 is at UNAVAILABLE state: Internal: no luck;"),
    ],
)
def test_a_member_that_is_missing_or_fails_is_named(
    members: tuple[Blueprint, ...], why: str
) -> None:
    policy = {"exit_on_error": False, "stubs": {"m": "no luck"}}

    world = SupervisorHarness(make_ensemble("e", "m"), *members, **policy).start()

    expected = (
        "UNAVAILABLE: Invalid argument: ensemble 'e' depends on 'm' which has no loaded version. "
        f"Model 'm' loading failed with error: {why}"
    )
    assert ("e", "1", expected) in world.tables[0]
    assert sum("loading: m:1" in line for line in world.log) == len(members), "tried once"


def test_a_version_of_a_member_that_does_not_serve_is_named() -> None:
    world = SupervisorHarness(
        make_ensemble("e", "m", version=2), make_blueprint("m"), exit_on_error=False
    ).start()

    text = "ensemble 'e' depends on 'm' whose required version 2 is not loaded."
    assert [("e", "1", f"UNAVAILABLE: Invalid argument: {text}")] == world.tables[0][:1]


def test_the_cause_of_an_ensemble_is_its_member_which_has_its_own() -> None:
    world = SupervisorHarness(make_ensemble("e", "z"), make_blueprint("z"))
    world.stub_behaviours["z"] = "no luck"
    world.start()

    assert [
        {"model": "e", "version": "1", "what": "version", "cause": "MEMBER_NOT_LOADED"},
        {"model": "z", "version": "1", "what": "version", "cause": "OTHER"},
    ] == [row for name in ("e", "z") for row in troubles(world.core.models[name])]


def test_ensembles_within_ensembles_have_a_limit() -> None:
    names = [f"e{level}" for level in range(MAX_DEPTH + 1)]
    inner = ["m", *names]
    models = [make_ensemble(name, inner[level]) for level, name in enumerate(names)]

    world = SupervisorHarness(*models, make_blueprint("m"), exit_on_error=False).start()

    statuses = {name: status for name, _, status in world.tables[0]}
    assert "READY" == statuses[names[-2]]
    assert f"can have ensembles in it at most {MAX_DEPTH} deep" in statuses[names[-1]]


@pytest.fixture
def world() -> SupervisorHarness:
    return explicit(make_ensemble("e", "m"), make_blueprint("m"))


@pytest.fixture
def loaded(world: SupervisorHarness) -> SupervisorHarness:
    """One that serves its ensemble."""
    world.call("load", LOAD_E)
    return world


def test_an_explicit_load_tries_members_that_have_failed_again(world: SupervisorHarness) -> None:
    world.stub_behaviours["m"] = "no luck"
    assert "no luck" in world.call("load", LOAD_E).error[1]

    world.stub_behaviours["m"] = LOADS

    assert world.call("load", LOAD_E).result is None
    assert "READY" == world.latest_version_info("e").state


def test_a_member_that_dies_makes_the_ensemble_unready_until_it_is_back() -> None:
    world = SupervisorHarness(
        make_ensemble("e", "m", "n"), make_blueprint("m"), make_blueprint("n", instances=2)
    ).start()

    world.kill_process(world.serial("m_0_0"))
    news = world.latest_version_info("e")
    assert ("READY", 0) == (news.state, news.ready_instances)
    assert "model 'm' of the ensemble is not ready" in text_of(news.reason)
    assert "killed by SIGKILL" in text_of(news.reason)
    [entry] = [entry for entry in world.index() if entry["name"] == "e"]
    assert "UNAVAILABLE" == entry["state"]

    world.tick()

    assert (1, None) == (
        world.latest_version_info("e").ready_instances,
        world.latest_version_info("e").reason,
    )


@pytest.mark.row("F14")
def test_an_unloaded_member_leaves_the_ensemble_loaded_and_not_ready(
    loaded: SupervisorHarness,
) -> None:
    loaded.call("unload", {"model": "m"})

    assert ("READY", 0) == (
        loaded.latest_version_info("e").state,
        loaded.latest_version_info("e").ready_instances,
    )
    assert loaded.call("load", {"model": "m"}).result is None
    assert 1 == loaded.latest_version_info("e").ready_instances


def test_what_is_served_and_has_not_changed_is_left_alone(loaded: SupervisorHarness) -> None:
    old = loaded.generation("e")

    assert "unchanged" == loaded.call("load", LOAD_E).result

    assert loaded.generation("e") is old


def serving(world: SupervisorHarness) -> set[str]:
    return {entry["name"] for entry in world.index() if entry.get("state") == "READY"}


def test_dependents_go_with_an_ensemble_unless_somebody_else_wanted_them() -> None:
    models = [make_blueprint(name) for name in ("alone", "asked", "shared")]
    world = explicit(
        make_ensemble("e", "alone", "asked", "shared"), make_ensemble("other", "shared"), *models
    )
    world.call("load", {"model": "asked"})
    world.call("load", LOAD_E)
    world.call("load", {"model": "other"})

    world.call("unload", {"model": "e", "unload_dependents": True})

    assert {"asked", "shared", "other"} == serving(world)


@pytest.mark.row("F14")
def test_dependents_of_a_member_are_the_ensembles_that_call_it() -> None:
    world = explicit(
        make_ensemble("e", "m"),
        make_ensemble("of_e", "e"),
        make_blueprint("m"),
        make_blueprint("n"),
    )
    for name in ("of_e", "n"):
        world.call("load", {"model": name})

    world.call("unload", {"model": "m", "unload_dependents": True})

    assert {"n"} == serving(world)


# -------------------------------------------------------------------------------------- call graph
# Models that ask others: loaded after them, and ended before them.


def caller(name: str, *callees: str) -> Blueprint:
    """Says in BLS_MODELS that it asks these."""
    return dataclasses.replace(make_blueprint(name), callees=callees)


def running(*models: Blueprint) -> SupervisorHarness:
    return SupervisorHarness(*models, control_mode="explicit", startup_models=("*",)).start()


def served(world: SupervisorHarness) -> list[str]:
    """In the order of their loading."""
    return [serve.model for serve in world.messages_to("broker", wire.AddGeneration)]


def ended(world: SupervisorHarness) -> list[str]:
    lines = [line for line in world.log if "successfully unloaded" in line]
    return [line.split("'")[1] for line in lines]


@pytest.mark.row("F14")
def test_what_a_model_says_that_it_asks_is_loaded_before_it() -> None:
    assert ["c", "b", "a"] == served(
        running(caller("a", "b"), caller("b", "c"), make_blueprint("c"))
    )


@pytest.mark.parametrize(
    "models",
    [
        (caller("a", "a"),),
        (caller("a", "b"), caller("b", "a")),
        (caller("a", "b"), caller("b", "c"), caller("c", "a")),
        (caller("a", "e"), make_ensemble("e", "a")),
        (make_ensemble("a", "z"), caller("z", "a")),
    ],
    ids=["itself", "two", "three", "ensemble last", "ensemble first"],
)
def test_models_that_ask_each_other_do_not_wait_for_each_other(
    models: tuple[Blueprint, ...],
) -> None:
    assert {"READY"} == {status for _, _, status in running(*models).tables[0]}


@pytest.mark.row("F14")
def test_with_dependents_callers_end_before_whom_they_call() -> None:
    world = running(caller("a", "b"), make_blueprint("b"), make_blueprint("other"))
    world.is_busy = True

    assert world.call("unload", {"model": "b", "unload_dependents": True}).result is None

    generations = {m: world.generation(m).number for m in ("a", "b")}
    assert ["UNLOADING"] * 2 == [world.latest_version_info(m).state for m in ("a", "b")]
    assert [generations["a"]] == [r.generation for r in world.messages_to("broker", wire.Retire)]

    world.receive(world.serial("broker"), wire.Drained(generations["a"]))
    world.receive(world.serial("broker"), wire.Drained(generations["b"]))
    assert (["a", "b"], "READY") == (ended(world), world.latest_version_info("other").state)


@pytest.mark.row("F14")
def test_who_has_asked_a_model_depends_on_it() -> None:
    world = running(make_blueprint("a"), make_blueprint("b"))
    world.receive(world.serial("broker"), wire.ModelCalled(world.generation("a").number, "b"))

    assert world.call("unload", {"model": "b", "unload_dependents": True}).result is None

    assert ["a", "b"] == ended(world)


def test_those_that_call_each_other_end_together() -> None:
    world = running(caller("a", "b"), caller("b", "a"), make_blueprint("c"))

    world.stop()

    assert ["a", "b", "c"] == sorted(ended(world))


def test_callers_that_go_on_are_not_waited_for() -> None:
    world = running(caller("a", "b"), make_blueprint("b"))

    world.call("unload", {"model": "b", "unload_dependents": False})

    assert ["b"] == ended(world)


def test_a_thousand_models_end_at_once() -> None:
    retired: list[int] = []
    generations: dict[int, Any] = {
        number: SimpleNamespace(
            number=number,
            blueprint=SimpleNamespace(name=f"m{number}"),
            callees=set(),
            state=GenerationState.SERVING,
            retire=partial(retired.append, number),
        )
        for number in range(1000)
    }
    plan = Plan()
    queue = RetirementQueue(plan, generations)
    begin_s = time.monotonic()

    for generation in generations.values():
        queue.retire_after_callers(generation)
    plan.ready.settle()

    assert [*range(1000)] == retired
    assert time.monotonic() - begin_s < 20  # it took more than a minute when all looked at all
