"""Versions of models, the index, and the loads of a start."""

from __future__ import annotations

import dataclasses
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


# ------------------------------------------------------------------------------- index
# The entries of models that were never loaded; those of others are in control's tests.
NOT_A_MODEL, LATER = Reason.of(Kind.OTHER, "no configuration"), Reason.of(Kind.OTHER, "not yet")


def _texts(entries: list[dict[str, Any]]) -> dict[str, str]:
    return {entry["name"]: entry.get("reason", "") for entry in entries}


def test_a_problem_of_the_repository_is_the_reason_of_its_model() -> None:
    entries = repository_index({"b": None, "a": NOT_A_MODEL}, {}, None)

    assert [("a", "no configuration"), ("b", "")] == [*_texts(entries).items()]
    assert {"name": "b"} == entries[1]


def test_models_that_were_not_tried_say_why() -> None:
    entries = repository_index({"b": None, "a": NOT_A_MODEL}, {}, LATER)

    assert {"a": "no configuration", "b": "not yet"} == _texts(entries)


def test_a_repository_that_cannot_be_listed_has_no_models() -> None:
    world = SupervisorHarness().start()
    world.listing_error = _GONE

    assert [] == world.call("index", {}).result


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


def test_a_repository_that_cannot_be_polled_for_a_while_costs_no_model() -> None:
    world = SupervisorHarness(make_blueprint("m"), control_mode="poll", poll_s=1.0).start()
    world.listing_error = _GONE
    world.advance(3.0)

    assert "READY" == world.latest_version_info("m").state
    assert world.has_logged("failed to poll the model repository: failed to stat file /models")


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

    read, world.is_busy = world.read, is_busy
    world.read = lambda *_: ReadFailure(because("model not found"))  # type: ignore[method-assign]
    look()
    assert "READY" == world.index()[0]["state"], "so far it is listed"

    world.read = read  # type: ignore[method-assign]
    del world.models["m"]
    look()
    assert ["UNLOADING"] * is_busy == [entry["state"] for entry in world.index()]
    retired = len(world.messages_to("broker", wire.Retire))
    look()
    assert retired == len(world.messages_to("broker", wire.Retire)), "it is ended once"


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
