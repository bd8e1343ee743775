"""Which instances are told to sleep or to wake up, and what their caller hears."""

from __future__ import annotations

import pytest

from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton_floor import wire
from zmqtriton_floor.errors import InternalError, NotFound, Unavailable


@pytest.fixture
def world() -> SupervisorHarness:
    return SupervisorHarness(
        make_blueprint("m", instances=2), startup_models=("m",), control_mode="explicit"
    ).start()


def questions(world: SupervisorHarness) -> list[tuple[int, wire.Call]]:
    """Return what stubs were asked, by serial."""
    return [(s, m) for s, m in world.sent if world.roles.get(s) == "stub" and type(m) is wire.Call]


def answer(world: SupervisorHarness, text: str = "", code: int = 0, last: int = 2) -> None:
    for serial, call in questions(world)[-last:]:
        world.receive(serial, wire.CallResult(call.id, code, text, ""))


def asleep(world: SupervisorHarness) -> dict[str, float]:
    return world.call("status").result["asleep_s"]


def test_the_first_refusal_is_the_answer_and_it_does_not_count_as_asleep(
    world: SupervisorHarness,
) -> None:
    call = world.call("sleep", {"model": "m"})
    [(first, one), (second, other)] = questions(world)
    world.receive(first, wire.CallResult(one.id, Unavailable.number, "it has requests", ""))
    world.receive(second, wire.CallResult(other.id, InternalError.number, "no sleep()", ""))

    assert (Unavailable.number, "'m_0_0': it has requests") == call.error
    assert {} == asleep(world)
    assert world.has_logged("sleep 'm' for")


@pytest.mark.parametrize("verb", ["sleep", "wake"])
def test_nothing_is_asked_where_the_repository_is_missing_or_the_server_stops(
    world: SupervisorHarness, verb: str
) -> None:
    world.core.startup.is_repository_missing = True
    assert "Server not ready" == world.call(verb, {"model": "m"}).error[1]
    world.core.startup.is_repository_missing = False
    world.core.stop_requested()

    assert "Server exiting" == world.call(verb, {"model": "m"}).error[1]
    assert [] == questions(world)


def test_a_death_is_an_answer(world: SupervisorHarness) -> None:
    call = world.call("sleep", {"model": "m"})
    answer(world, last=1)
    world.kill_process(questions(world)[0][0])

    assert (Unavailable.number, "'m_0_0': killed by SIGKILL") == call.error


def test_what_cannot_sleep_is_said(world: SupervisorHarness) -> None:
    assert NotFound.number == world.call("sleep", {"model": "other"}).error[0]
    world.call("unload", {"model": "m"})

    code, text = world.call("sleep", {"model": "m"}).error
    assert (
        Unavailable.number,
        "model 'm' has no instance that is ready; see `zmqtriton-ctl explain`",
    ) == (code, text)
