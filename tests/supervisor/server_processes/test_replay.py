"""Messages to a new process of the server, and to a service manager."""

from __future__ import annotations

from typing import Any

import pytest

from tests.supervisor.world import SupervisorHarness, make_blueprint
from zmqtriton.supervisor.server_processes.introductions import BrokerReplay
from zmqtriton_floor import wire

# ------------------------------------------------------------------------------ replay
# The next broker's introduction to the time of the last one.


S = 5


EXPECTED = wire.ExpectPeer(S, b"t" * 16, "stub", "m_0", 0)


OLD, NEW = wire.AddGeneration(1, "m", 1, "{}"), wire.AddGeneration(2, "m", 1, "{}")


ATTACHED = wire.AttachInstance(1, S, "m_0")


GONE = wire.PeerDied(S, "exited")


REMOVED = wire.RemoveGeneration(1, "unloaded")


def recorded(*messages: Any) -> BrokerReplay:
    replay = BrokerReplay()
    for message in messages:
        replay.record(message)
    return replay


@pytest.fixture
def replay() -> BrokerReplay:
    """Generation 1 was reloaded and has ended."""
    return recorded(EXPECTED, OLD, ATTACHED, NEW, wire.Retire(1), GONE, REMOVED)


def test_a_generation_that_has_ended_and_its_successor_are_told_in_their_order(
    replay: BrokerReplay,
) -> None:
    replay.settle(wire.Settled(1, S))
    replay.forget_memory(S)

    assert ([OLD, NEW, REMOVED], []) == (replay.all_messages(), replay.retirements())


def test_of_a_stub_whose_end_no_broker_has_settled_the_next_one_hears(
    replay: BrokerReplay,
) -> None:
    assert [EXPECTED, OLD, NEW, ATTACHED, GONE, REMOVED] == replay.all_messages()


def test_a_stub_that_was_settled_before_it_ends_is_expected_and_not_attached() -> None:
    replay = recorded(EXPECTED, OLD, ATTACHED, wire.Retire(1, S))

    replay.settle(wire.Settled(1, S))

    assert ([EXPECTED, OLD], []) == (replay.all_messages(), replay.retirements())
    assert replay.is_alive(S)
    replay.record(GONE)
    assert [OLD, GONE] == replay.all_messages()
    replay.forget_memory(S)
    assert [OLD] == replay.all_messages()


def test_a_settled_generation_is_told_as_retired_at_once_and_any_other_later() -> None:
    replay = recorded(EXPECTED, OLD, ATTACHED, NEW, wire.Retire(1), wire.Retire(2))

    replay.settle(wire.Settled(1))

    assert [EXPECTED, OLD, NEW, wire.Retire(1)] == replay.all_messages()
    assert [wire.Retire(2)] == replay.retirements()


def test_only_the_last_generations_that_have_ended_are_kept() -> None:
    replay = BrokerReplay()
    for number in range(1, 1001):
        replay.record(wire.ExpectPeer(number, b"t" * 16, "stub", "m_0", 0))
        replay.record(wire.AddGeneration(number, "m", 1, "{}"))
        replay.record(wire.AttachInstance(number, number, "m_0"))
        replay.record(wire.PeerDied(number, "exited"))
        replay.forget_memory(number)
        replay.record(wire.RemoveGeneration(number, "unloaded"))

    messages = replay.all_messages()

    assert wire.RemoveGeneration(1000, "unloaded") == messages[-1]
    assert len(messages) < 500
    assert not any(type(m) is wire.RemoveGeneration and m.generation == 1 for m in messages)


def test_a_process_that_lives_stays_expected_when_its_generation_is_forgotten() -> None:
    replay = recorded(EXPECTED, OLD, ATTACHED, REMOVED)
    for number in range(2, 1001):
        replay.record(wire.AddGeneration(number, "m", 1, "{}"))
        replay.record(wire.RemoveGeneration(number, "unloaded"))

    assert EXPECTED in replay.all_messages()
    assert ATTACHED not in replay.all_messages()
    assert replay.is_alive(S)


def test_a_division_that_is_over_is_not_told() -> None:
    divided = wire.TrafficSplit("m", 1, 2, 1000, "", "", 0, "")
    replay = recorded(divided)
    assert [divided] == replay.all_messages()

    replay.record(divided._replace(stable=0, tried=0))
    replay.record(divided._replace(stable=0, tried=0))

    assert [] == replay.all_messages()


# --------------------------------------------------------------------- service manager
# Notifications to the service manager, in a world without processes.


READY = "READY=1\nSTATUS=1 of 1 model versions are ready"


def listen(world: SupervisorHarness) -> None:
    for role, service in (("grpc", "GRPCInferenceService"), ("metrics", "Metrics Service")):
        world.receive(world.serial(role), wire.Opened([wire.ServiceAddress(service, "0.0.0.0:1")]))
    world.receive(
        world.fork_http_worker(), wire.Opened([wire.ServiceAddress("HTTPService", "0.0.0.0:2")])
    )


@pytest.fixture
def world() -> SupervisorHarness:
    world = SupervisorHarness(make_blueprint("m"), watchdog_interval_s=2.0).start()
    listen(world)
    return world


def test_it_is_said_to_live_at_each_beat(world: SupervisorHarness) -> None:
    world.advance(4.1)

    assert ["WATCHDOG=1", "WATCHDOG=1"] == world.service_manager_texts[1:]


def test_the_server_before_names_the_next_one_and_falls_silent(world: SupervisorHarness) -> None:
    world.call("succession.leave", {"pid": 77})
    world.advance(10.0)

    assert [READY, "MAINPID=77"] == world.service_manager_texts[:2]
    assert [] == world.service_manager_texts[2:]


def test_a_server_that_takes_over_is_silent_until_the_one_before_has_heard() -> None:
    world = SupervisorHarness(make_blueprint("m"), watchdog_interval_s=2.0)
    succession = world.core.events.succession
    succession.follow(7)
    world.start().advance(5.0)
    assert [] == world.service_manager_texts

    [question] = [m for serial, m in world.sent if serial == 7]
    world.receive(7, wire.CallResult(question.id, 0, "", "[]"))
    listen(world)
    world.advance(2.1)
    assert [] == world.service_manager_texts
    succession.caller_ended(7)
    world.advance(2.1)

    first, *_ = world.service_manager_texts
    assert first.startswith("WATCHDOG=1")
