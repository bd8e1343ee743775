"""Versions of models, the index, and the loads of a start."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from typing import Any

import pytest

from tests.floor.reasons import because
from tests.supervisor.models.test_preparations import answer, demanding
from tests.supervisor.world import HANGS, LOADS, SupervisorHarness, make_blueprint
from zmqtriton.reading.blueprint import Blueprint, ReadFailure
from zmqtriton.supervisor.models.model_report import repository_index
from zmqtriton.supervisor.models.startup import SETTLE_S
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError, Unavailable
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

    reasons = {str(broken): FAILED, str(3 - broken): "unloaded"}
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
@pytest.mark.extra("canaries")
def test_a_canary_that_fails_keeps_no_other_version_from_serving(kind: str) -> None:
    model = blueprint(broken=2)
    if kind == "configured":
        from zmqtriton_extras.canaries.settings import CanarySettings

        model = replace(model, trial=CanarySettings(2))
    else:
        model = replace(model, policy_versions=frozenset({1}))

    assert {"1": ("READY", ""), "2": ("UNAVAILABLE", FAILED)} == states(world_with(model))


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


# ----------------------------------------------------------------------------- startup
# The start of a server whose repository cannot be listed.
_GONE = InternalError("failed to stat file /models")


_LOAD = {"model": "m", "parameters": {}}


def without_repository(**policy: object) -> SupervisorHarness:
    world = SupervisorHarness(make_blueprint("m"), **policy)
    world.listing_error = _GONE
    return world.start()


@pytest.mark.row("F16")
def test_a_repository_that_is_not_there_ends_the_server() -> None:
    world = without_repository()

    assert ["error: creating server: Internal - failed to stat file /models"] == world.complaints
    assert 1 == world.status


@pytest.mark.row("F16")
@pytest.mark.parametrize("mode", ["none", "poll", "explicit"])
def test_a_server_that_goes_on_without_a_repository_serves_nothing(mode: str) -> None:
    world = without_repository(exit_on_error=False, control_mode=mode)
    worker = world.fork_http_worker()
    world.advance(5.0)

    assert [wire.Listen()] == world.messages_to("grpc", wire.Listen)
    assert wire.RepositoryState(1) == world.messages_to("grpc", wire.RepositoryState)[-1]
    assert (worker, wire.RepositoryState(1)) in world.sent, "so is one that comes later"
    refusal = (Unavailable.number, "Server not ready")
    for verb in ("index", "load", "unload"):
        assert refusal == world.call(verb, _LOAD).error
    assert 1 == world.log.count("E Internal: failed to stat file /models")
    assert not world.core.startup.is_over


@pytest.mark.parametrize("mode", ["none", "poll"])
def test_a_repository_that_comes_later_is_served(mode: str) -> None:
    world = without_repository(exit_on_error=False, control_mode=mode)

    world.listing_error = None
    world.advance(5.0)

    news = [
        message
        for serial, message in world.sent
        if serial == world.serial("grpc")
        and type(message) in (wire.RepositoryState, wire.VersionInfo)
    ]
    assert wire.RepositoryState(0) == news[-1], "it is ready when its models are"
    assert "READY" == world.latest_version_info("m").state
    assert world.has_logged("the model repository can be listed; its models are loaded")
    assert world.core.startup.is_over
    assert (0, "") == world.call("index", {}).error


def test_models_can_be_loaded_when_the_repository_has_come() -> None:
    world = without_repository(exit_on_error=False, control_mode="explicit")

    world.listing_error = None
    world.advance(5.0)

    assert (0, "") == world.call("load", _LOAD).error
    assert "READY" == world.latest_version_info("m").state


@pytest.mark.row("F02")
@pytest.mark.parametrize("control", ["poll", pytest.param("reload", marks=pytest.mark.addons)])
@pytest.mark.parametrize("is_busy", [False, True])
def test_a_model_that_goes_between_a_listing_and_its_reading_ends_with_the_next(
    control: str, is_busy: bool
) -> None:
    world = SupervisorHarness(
        make_blueprint("m"), control_mode="poll" if control == "poll" else "none", poll_s=1.0
    ).start()

    def look() -> None:
        if control == "poll":
            world.advance(1.0)
        else:
            world.call("reload")

    read, world.is_busy = world._read, is_busy
    world._read = lambda *_: ReadFailure(because("model not found"))  # type: ignore[method-assign]
    look()
    assert "READY" == world.index()[0]["state"], "so far it is listed"

    world._read = read  # type: ignore[method-assign]
    del world.models["m"]
    look()
    assert ["UNLOADING"] * is_busy == [entry["state"] for entry in world.index()]
    retired = len(world.messages_to("broker", wire.Retire))
    look()
    assert retired == len(world.messages_to("broker", wire.Retire)), "it is ended once"


@pytest.mark.parametrize("control", ["poll", pytest.param("reload", marks=pytest.mark.addons)])
def test_a_model_that_comes_back_while_it_still_ends_is_loaded(control: str) -> None:
    mode = "poll" if control == "poll" else "none"
    world = SupervisorHarness(make_blueprint("m"), control_mode=mode, poll_s=1.0).start()
    world.is_busy, files = True, world.models["m"]

    def look() -> None:
        if control == "poll":
            world.advance(1.0 + SETTLE_S)
        else:
            world.call("reload")

    del world.models["m"]
    look()
    assert "UNLOADING" == world.index()[0]["state"], "it has requests"
    world.models["m"] = files
    look()

    assert "READY" == world.index()[0]["state"]


def test_a_poll_leaves_models_alone_whose_repository_does_not_answer() -> None:
    world = SupervisorHarness(
        make_blueprint("m"), make_blueprint("n"), control_mode="poll", poll_s=1.0
    ).start()
    assert [True] == world.patience[:1]
    before = {name: world.generation(name).number for name in ("m", "n")}
    world.silent_models = {"n": Reason.of(Kind.REPOSITORY_SILENT, "silent", repository="/two")}
    for name in ("m", "n"):
        world.models[name] = replace(world.models[name], fingerprint="2")

    world.advance(1.0 + SETTLE_S)

    assert not any(world.patience[1:])
    assert before["m"] < world.generation("m").number
    assert before["n"] == world.generation("n").number
    assert ["READY", "READY"] == [entry["state"] for entry in world.index()]


def test_a_server_that_waits_for_its_repository_can_be_stopped() -> None:
    world = without_repository(exit_on_error=False)

    world.stop()
    world.advance(60.0)

    assert 0 == world.status
    assert set() == world.alive


# -------------------------------------------------------------------- startup progress
# The lines about a start that takes long.
def starting(*models: Blueprint, **policy: object) -> SupervisorHarness:
    world = SupervisorHarness(*models, **policy)
    world.stub_behaviours["slow"] = HANGS
    return world.start()


def progress_lines(world: SupervisorHarness) -> list[str]:
    return [line for line in world.log if line.startswith("I still starting ")]


def test_a_long_start_says_every_few_seconds_what_it_waits_for() -> None:
    world = starting(make_blueprint("good"), make_blueprint("slow"), demanding("x"))

    world.advance(1.0)
    assert [] == progress_lines(world)
    world.advance(2.0)
    world.receive(world.preparation_serials["x"], wire.PreparationProgress(0, "Reading x", 5, 20))
    world.advance(5.0)
    answer(world, "x")
    world.advance(5.0)

    slow = "slow (its code is imported and initialized)"
    assert [
        f"I still starting after 2 s, waiting for {slow}, x (preparing the interpreter /bin/x)",
        f"I still starting after 7 s, waiting for {slow}, x (Reading x: 25 %)",
        f"I still starting after 12 s, waiting for {slow}",
    ] == progress_lines(world)


def test_models_that_wait_for_their_turn_come_last() -> None:
    caller = dataclasses.replace(make_blueprint("caller"), callees=("slow",))
    world = starting(caller, make_blueprint("slow"), make_blueprint("zebra"), load_slots=1)

    world.advance(4.0)

    assert [
        "I still starting after 2 s, waiting for caller (the models that it calls are loaded "
        "first), slow (its code is imported and initialized), zebra (it waits until others are "
        "loaded)"
    ] == progress_lines(world)


def test_after_the_start_or_its_end_nothing_is_said() -> None:
    ready = starting(make_blueprint("good"))
    stopped = starting(make_blueprint("slow"))
    stopped.core.stop_requested()

    for world in (ready, stopped):
        world.advance(60.0)

        assert [] == progress_lines(world)
