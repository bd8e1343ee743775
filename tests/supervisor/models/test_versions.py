"""Versions of models, and the index of the repository."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.supervisor.world import HANGS, LOADS, SupervisorHarness, make_blueprint
from zmqtriton.supervisor.models.blueprint import Blueprint
from zmqtriton.supervisor.models.model_report import repository_index
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError
from zmqtriton_floor.reasons import Kind, Reason

# ---------------------------------------------------------------------------- versions
# A load of several versions, of which one fails: as in Triton, all of them serve or none does.


FAILED = "Internal: no file"


def blueprint(
    fingerprint: str = "1", *, broken: int = 0, versions: tuple[int, ...] = (1, 2)
) -> Blueprint:
    """A model of which this version cannot be loaded."""
    whole = make_blueprint("m", fingerprint, versions=versions)
    own_versions = dict(whole.versions)
    if broken:
        own_versions[broken] = replace(own_versions[broken], problem=InternalError("no file"))
    return replace(whole, versions=own_versions)


def world_with(model: Blueprint) -> SupervisorHarness:
    return SupervisorHarness(
        model, control_mode="explicit", startup_models=("m",), exit_on_error=False
    ).start()


def states(world: SupervisorHarness) -> dict[str, tuple[str, str]]:
    return {one["version"]: (one["state"], one.get("reason", "")) for one in world.index()}


@pytest.mark.row("F10")
@pytest.mark.parametrize("broken", [1, 2])
def test_of_a_first_load_nothing_serves_if_one_version_fails(broken: int) -> None:
    world = world_with(blueprint(broken=broken))

    other = str(3 - broken)
    reasons = {str(broken): FAILED, other: "unloaded"}
    assert {n: ("UNAVAILABLE", reasons[n]) for n in reasons} == states(world)
    assert [] == world.living("stub")
    call = world.call("load", {"model": "m"})
    text = f"load failed for model 'm': version {broken} is at UNAVAILABLE state: {FAILED};\n"
    assert text == call.error[1]


@pytest.mark.row("F10")
@pytest.mark.parametrize("broken", [1, 2])
def test_of_a_reload_nothing_takes_the_place_of_what_serves(broken: int) -> None:
    world = world_with(blueprint())
    before = [world.generation("m", number) for number in (1, 2)]
    world.models["m"] = blueprint("2", broken=broken)

    assert world.call("load", {"model": "m"}).error

    assert before == [world.generation("m", number) for number in (1, 2)]
    other = f"still served, the last load failed: version {broken} could not be loaded"
    said = f"still served, the last load failed: {FAILED}"
    assert {str(broken): ("READY", said), str(3 - broken): ("READY", other)} == states(world)
    assert 2 == len(world.living("stub"))


def test_a_version_that_is_new_and_broken_leaves_the_other_one_serving() -> None:
    world = world_with(blueprint(versions=(1,)))
    before = world.generation("m")
    world.models["m"] = blueprint("2", broken=2)

    assert world.call("load", {"model": "m"}).error

    assert before is world.generation("m")
    assert ("UNAVAILABLE", FAILED) == states(world)["2"]
    assert 1 == len(world.living("stub"))


def test_new_versions_begin_to_serve_together() -> None:
    world = world_with(blueprint())
    before = [world.generation("m", number).number for number in (1, 2)]
    world.models["m"] = blueprint("2")
    world.stub_behaviours["m"] = HANGS
    call = world.call("load", {"model": "m"})
    first, second = world.living("stub")[-2:]

    for serial, ready in ((first, False), (second, True)):
        load = next(m for s, m in world.sent if s == serial and isinstance(m, wire.LoadModel))
        world.stub_behaviours["m"] = LOADS
        world.receive(serial, wire.ConfigCompleted(load.config))
        now = [world.generation("m", number).number for number in (1, 2)]
        assert ready == (before != now)
        assert (before[0] != now[0]) == (before[1] != now[1])

    assert call.result is None


@pytest.mark.parametrize(("changed", "is_rolled"), [((2,), True), ((1, 2), False)])
def test_code_is_rolled_out_in_place_where_it_is_that_of_one_version(
    changed: tuple[int, ...], is_rolled: bool
) -> None:
    def model(fingerprint: str) -> Blueprint:
        whole = blueprint(fingerprint)
        marks = {n: fingerprint if n in changed else "1" for n in whole.versions}
        versions = {
            n: replace(v, fingerprint_without_instances=marks[n], fingerprint_without_code="same")
            for n, v in whole.versions.items()
        }
        return replace(whole, versions=versions)

    world = world_with(model("1"))
    before = [world.generation("m", number) for number in (1, 2)]
    world.models["m"] = model("2")

    assert world.call("load", {"model": "m"}).result is None

    assert is_rolled == (before == [world.generation("m", number) for number in (1, 2)])
    assert 2 == len(world.living("stub"))


def test_a_version_that_is_dropped_meanwhile_does_not_keep_the_other_from_serving() -> None:
    world = world_with(blueprint(versions=(1,)))
    world.models["m"] = blueprint("2")
    world.stub_behaviours["m"] = HANGS
    call = world.call("load", {"model": "m"})
    model = world.core.models["m"]

    model.unload_version(model.versions[2])
    world.run_until_idle()
    serial = world.living("stub")[-1]
    world.stub_behaviours["m"] = LOADS
    load = next(m for s, m in world.sent if s == serial and isinstance(m, wire.LoadModel))
    world.receive(serial, wire.ConfigCompleted(load.config))

    assert "version 2 is at UNAVAILABLE state: unloaded" in call.error[1]
    assert ("READY", "") == states(world)["1"]


@pytest.mark.parametrize("kind", [pytest.param("configured", marks=pytest.mark.addons), "kept"])
def test_a_canary_that_fails_keeps_no_other_version_from_serving(kind: str) -> None:
    model = blueprint(broken=2)
    if kind == "configured":
        from zmqtriton_addons.canaries.settings import CanarySettings

        model = replace(model, canary=CanarySettings(2))
    else:
        model = replace(model, policy_versions=frozenset({1}))

    world = world_with(model)

    assert {"1": ("READY", ""), "2": ("UNAVAILABLE", FAILED)} == states(world)


def test_a_change_of_instances_waits_for_the_versions_that_are_new() -> None:
    world = world_with(blueprint(versions=(1,)))
    wider = make_blueprint("m", "2", versions=(1, 2), instances=2)
    same = replace(world.generation("m").blueprint.versions[1], fingerprint_without_instances="x")
    world.generation("m").blueprint = replace(world.generation("m").blueprint, versions={1: same})
    broken = replace(wider.versions[2], problem=InternalError("no file"))
    world.models["m"] = replace(wider, versions={1: same, 2: broken})

    assert world.call("load", {"model": "m"}).error
    assert 1 == len(world.living("stub"))

    world.models["m"] = replace(wider, fingerprint="3", versions={1: same, 2: wider.versions[2]})
    world.call("load", {"model": "m"})

    assert 4 == len(world.living("stub"))
    assert {"1": ("READY", ""), "2": ("READY", "")} == states(world)


# ----------------------------------------------------------------------- version infos
# News of a model for frontends: those of each version, or that it has none.


NAME = "m"


def serve(model: Blueprint, **policy: object) -> SupervisorHarness:
    return SupervisorHarness(
        model, control_mode="explicit", startup_models=(NAME,), exit_on_error=False, **policy
    ).start()


def infos(world: SupervisorHarness) -> list[wire.VersionInfo]:
    return world.core.models[NAME].version_infos()


def test_each_version_has_its_news() -> None:
    news = infos(serve(make_blueprint(NAME, versions=(1, 3))))

    assert [(NAME, 1, "READY", 1), (NAME, 3, "READY", 1)] == [
        (one.model, one.version, one.state, one.ready_instances) for one in news
    ]
    assert {json.dumps({"name": NAME})} == {one.config for one in news}
    assert {(0, 0)} == {(one.is_on_demand, one.is_draining) for one in news}


def test_a_model_without_a_version_is_one_that_is_unavailable() -> None:
    [news] = infos(serve(make_blueprint(NAME, versions=())))

    assert news.reason is not None
    assert Kind.NO_VERSION == news.reason.kind
    assert wire.VersionInfo(0, NAME, 0, "UNAVAILABLE", news.reason, 0, "", b"") == news


def test_a_model_that_has_lost_its_versions_has_news_of_those_that_there_were() -> None:
    world = serve(make_blueprint(NAME))
    world.models[NAME] = make_blueprint(NAME, "2", versions=())

    world.call("load", {"model": NAME})

    assert [1] == [one.version for one in infos(world)]


def test_a_model_that_was_not_loaded_yet_has_no_news() -> None:
    world = serve(make_blueprint(NAME))
    world.models["other"] = make_blueprint("other", "2")
    world.stub_behaviours["other"] = "hangs"
    world.call("load", {"model": "other"})
    other = world.core.models["other"]

    assert [("LOADING", 1)] == [(one.state, one.version) for one in other.version_infos()]


# ------------------------------------------------------------------------------- index
# The entries of models that were never loaded; those of others are in control's tests.


NOT_A_MODEL, LATER = Reason.of(Kind.OTHER, "no configuration"), Reason.of(Kind.OTHER, "not yet")


def _texts(entries: list[dict[str, Any]]) -> dict[str, str]:
    return {entry["name"]: entry.get("reason", "") for entry in entries}


def test_a_problem_of_the_repository_is_the_reason_of_its_model() -> None:
    entries = repository_index({"b": None, "a": NOT_A_MODEL}, {}, None)

    assert [("a", "no configuration"), ("b", "")] == [*_texts(entries).items()]
    assert {"name": "b"} == entries[1]


def test_a_model_whose_repository_does_not_answer_is_as_it_was() -> None:
    silent = Reason.of(Kind.REPOSITORY_SILENT, "it does not answer", repository="/two")
    world = SupervisorHarness(make_blueprint("m")).start()
    listing: dict[str, Reason | None] = {"m": silent, "n": silent}

    [served, unknown] = repository_index(listing, world.core.models, None)

    assert ("m", "READY") == (served["name"], served["state"])
    assert ("n", "UNAVAILABLE", "it does not answer") == (
        unknown["name"],
        unknown["state"],
        unknown["reason"],
    )


def test_models_that_were_not_tried_say_why() -> None:
    entries = repository_index({"b": None, "a": NOT_A_MODEL}, {}, LATER)

    assert {"a": "no configuration", "b": "not yet"} == _texts(entries)


def test_a_repository_that_cannot_be_listed_has_no_models() -> None:
    assert [] == repository_index(InternalError("no such directory"), {}, LATER)
