"""The broker dies: the next one is told what still holds, everybody else where it is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton_floor import wire
from zmqtriton_floor.reasons import Kind, Reason

KILLED = "killed by SIGKILL"


@pytest.fixture
def world() -> SupervisorHarness:
    world = SupervisorHarness(
        make_blueprint("m"), make_blueprint("other"), control_mode="explicit"
    ).start()
    for model in ("m", "other"):
        assert world.call("load", {"model": model}).result is None
    world.fork_http_worker()
    return world


def said_to(world: SupervisorHarness, serial: int) -> list[Any]:
    return [message for to, message in world.sent if to == serial]


def kill_broker(world: SupervisorHarness) -> int:
    """The serial of the one that takes its place."""
    world.kill_process(world.serial("broker"), KILLED).tick()
    return world.serial("broker")


def test_an_unload_while_there_is_no_broker_is_answered_by_the_next(
    world: SupervisorHarness,
) -> None:
    world.kill_process(world.serial("broker"), KILLED)

    call = world.call("unload", {"model": "m"})
    assert call.answer is None
    world.tick()

    assert call.result is None


@pytest.mark.parametrize("is_told", [False, True], ids=["settled", "not settled"])
def test_a_death_that_the_old_broker_has_not_settled_is_told_again(
    world: SupervisorHarness, is_told: bool
) -> None:
    broker, dead = world.serial("broker"), world.serial("m_0_0")
    world.silent = {broker} if is_told else set()
    world.kill_process(dead)

    world.advance(60.0 if is_told else 0.0)

    assert (wire.PeerDied(dead, KILLED) in said_to(world, kill_broker(world))) is is_told


def test_memory_of_which_no_broker_has_ever_heard_is_freed_at_once(
    world: SupervisorHarness,
) -> None:
    kill_broker(world)
    world.kept_segments.clear()
    stranger = world.core.plan.new_serial()

    world.core.events.process_ended(stranger, Reason.of(Kind.KILLED, KILLED))
    world.run_until_idle()

    assert [(stranger, [])] == world.kept_segments


def test_brokers_that_come_up_and_die_at_once_never_end_the_server(
    world: SupervisorHarness,
) -> None:
    for _ in range(40):
        world.kill_process(world.serial("broker"))
        while not world.living("broker"):
            world.advance(0.1)

    assert world.status is None


def test_the_server_ends_when_no_broker_has_come_up_for_a_minute(
    world: SupervisorHarness,
) -> None:
    world.silent |= set(range(world.serial("broker") + 1, 1000))  # no later one comes up
    begun_s = world.now_s
    while world.status is None:
        if world.living("broker"):
            world.kill_process(world.serial("broker"))
        world.advance(0.1)

    assert world.status == 1
    assert world.now_s - begun_s > 60
    assert world.has_logged("no broker comes up any more")


def test_a_server_that_is_stopping_needs_its_broker_until_the_models_have_ended(
    world: SupervisorHarness,
) -> None:
    world.stubborn = {"grpc"}
    world.stop()

    kill_broker(world)
    world.stubborn = set()
    world.kill_process(world.serial("grpc"), "exited with status 0").advance(5.0)

    assert world.status == 0
