"""A connection to the broker that ends between living processes: who is replaced for it."""

from __future__ import annotations

import pytest

from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton.supervisor.states import InstanceState
from zmqtriton_floor import wire

_DEATH_IS_SEEN_S = 1.0


@pytest.fixture
def world() -> SupervisorHarness:
    return SupervisorHarness(make_blueprint("m")).start()


def lose(world: SupervisorHarness, serial: int) -> None:
    world.receive(world.serial("broker"), wire.ConnectionLost(serial))


def test_a_stub_is_killed_and_replaced(world: SupervisorHarness) -> None:
    stub, broker = world.serial("m_0_0"), world.serial("broker")

    lose(world, stub)
    assert stub in world.alive, "it may be dying, of which its death tells"
    world.advance(_DEATH_IS_SEEN_S)

    assert stub not in world.alive
    assert broker in world.alive
    assert InstanceState.READY is world.instance("m").state
    assert world.has_logged("stub m_0_0 is killed: its connection to the broker has ended")


@pytest.mark.parametrize("state", [InstanceState.STARTING, InstanceState.STOPPING])
def test_a_stub_that_is_about_to_connect_or_to_end_is_left_alone(
    world: SupervisorHarness, state: InstanceState
) -> None:
    instance, stub = world.instance("m"), world.serial("m_0_0")
    instance.state = state

    lose(world, stub)
    world.advance(_DEATH_IS_SEEN_S)

    assert stub in world.alive
    assert not world.has_logged("is killed")


def test_the_broker_is_replaced_for_a_frontend_which_has_clients(
    world: SupervisorHarness,
) -> None:
    broker, frontend, stub = (world.serial(role) for role in ("broker", "grpc", "m_0_0"))

    lose(world, frontend)
    world.advance(_DEATH_IS_SEEN_S)

    assert broker not in world.alive
    assert {frontend, stub} <= world.alive
    assert world.serial("broker") > broker
    assert world.has_logged("the broker is replaced: the connection to the grpc process")


def test_a_process_that_has_died_meanwhile_concerns_nobody(world: SupervisorHarness) -> None:
    broker, stub, frontend = (world.serial(role) for role in ("broker", "m_0_0", "grpc"))

    for serial in (stub, frontend):
        lose(world, serial)
        world.kill_process(serial)
    world.advance(_DEATH_IS_SEEN_S)

    assert broker in world.alive
    assert not world.has_logged("is killed")
    assert not world.has_logged("is replaced")


def test_a_death_that_a_busy_supervisor_sees_late_concerns_nobody(
    world: SupervisorHarness,
) -> None:
    broker, frontend = world.serial("broker"), world.serial("grpc")
    world.silent.add(broker)

    lose(world, frontend)
    world.advance(_DEATH_IS_SEEN_S)  # in one turn: it has looked at nothing else meanwhile
    world.kill_process(frontend)
    question = world.messages_to("broker", wire.Sync)[-1]
    world.receive(broker, wire.Synced(question.number))
    world.advance(_DEATH_IS_SEEN_S)

    assert broker in world.alive
    assert not world.has_logged("is replaced")


def test_what_an_earlier_broker_has_lost_is_over(world: SupervisorHarness) -> None:
    stub, frontend = world.serial("m_0_0"), world.serial("grpc")

    lose(world, stub)
    lose(world, frontend)
    world.kill_process(world.serial("broker")).tick()
    replacement = world.serial("broker")
    world.advance(_DEATH_IS_SEEN_S)

    assert {stub, frontend, replacement} <= world.alive


def test_a_server_that_stops_replaces_no_broker(world: SupervisorHarness) -> None:
    world.stubborn |= {"m_0_0", "grpc", "broker"}
    broker, frontend = world.serial("broker"), world.serial("grpc")

    lose(world, frontend)
    world.core.stop()
    world.run_until_idle()
    world.advance(_DEATH_IS_SEEN_S)

    assert broker in world.alive
    assert not world.has_logged("is replaced")
