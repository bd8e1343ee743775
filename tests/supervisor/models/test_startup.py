"""The loads of a start."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import pytest

from tests.floor.reasons import because
from tests.supervisor.models.test_preparations import answer, demanding
from tests.supervisor.world import HANGS, SupervisorHarness, make_blueprint
from zmqtriton.supervisor.models.blueprint import Blueprint, ReadFailure
from zmqtriton.supervisor.models.startup import SETTLE_S
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError, Unavailable
from zmqtriton_floor.reasons import Kind, Reason

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

    world.core.stop_requested()
    world.run_until_idle()
    world.advance(60.0)

    assert 0 == world.status
    assert set() == world.alive


@pytest.mark.parametrize(
    ("default", "models", "problem"),
    [
        ("", ["m"], ""),
        ("m", ["m", "n"], ""),
        ("", ["m", "n"], "Expect the model repository contains only a single model if default "),
        ("x", ["m"], "Expect the default model 'x' is loaded"),
    ],
)
def test_vertex_ai_needs_a_model_for_predictions(
    default: str, models: list[str], problem: str
) -> None:
    blueprints = map(make_blueprint, models)
    world = SupervisorHarness(*blueprints, control_mode="none", vertex_ai_default_model=default)

    world.start()

    text = "failed to start Vertex AI service: Invalid argument - "
    assert [bool(problem)] == [line.startswith(text + problem) for line in world.complaints] or (
        not problem and not world.complaints
    )
    assert (1 if problem else None) == world.status


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
