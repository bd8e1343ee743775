"""Messages to a new process of the server, and to a service manager."""

from __future__ import annotations

from typing import Any

import pytest

from tests.supervisor.world import HANGS, SupervisorHarness, make_blueprint
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


def test_ready_is_said_when_models_were_tried_and_all_services_listen() -> None:
    world = SupervisorHarness(make_blueprint("m"), watchdog_interval_s=2.0).start()
    for role, service in (("grpc", "GRPCInferenceService"), ("metrics", "Metrics Service")):
        world.receive(world.serial(role), wire.Opened([wire.ServiceAddress(service, "0.0.0.0:1")]))
    assert [] == world.service_manager_texts

    for _ in range(2):
        world.receive(
            world.fork_http_worker(), wire.Opened([wire.ServiceAddress("HTTPService", "0.0.0.0:2")])
        )
        assert [READY] == world.service_manager_texts


def test_a_start_may_take_its_time_while_the_broker_answers() -> None:
    policy = {"watchdog_interval_s": 2.0, "stubs": {"m": HANGS}}

    world = SupervisorHarness(make_blueprint("m"), **policy).start().advance(5.0)

    first, second = world.service_manager_texts
    status = "STATUS=0 of 1 model versions are ready, not m version 1"
    assert f"EXTEND_TIMEOUT_USEC=12000000\n{status}" == first
    assert "EXTEND_TIMEOUT_USEC=12000000" == second


def test_frontends_that_listen_early_do_not_make_the_server_ready() -> None:
    policy = {"watchdog_interval_s": 2.0, "early_liveness": True, "stubs": {"m": HANGS}}
    world = SupervisorHarness(make_blueprint("m"), **policy).start()

    listen(world)

    assert [] == [notice for notice in world.service_manager_texts if "READY=1" in notice]


def test_it_is_said_to_live_at_each_beat(world: SupervisorHarness) -> None:
    world.advance(4.1)

    assert ["WATCHDOG=1", "WATCHDOG=1"] == world.service_manager_texts[1:]


def test_without_an_answer_of_the_broker_it_is_not_said_to_live(world: SupervisorHarness) -> None:
    broker = world.serial("broker")
    world.silent.add(broker)

    # Longer than whoever waits for a change waits for one process.
    world.advance(100.0)
    assert [READY] == world.service_manager_texts

    world.silent.clear()
    sync = [m for s, m in world.sent if s == broker and isinstance(m, wire.Sync)][-1]
    world.receive(broker, wire.Synced(sync.number))
    assert ["WATCHDOG=1"] == world.service_manager_texts[1:]
    world.advance(2.0)
    assert ["WATCHDOG=1"] * 2 == world.service_manager_texts[1:]


def test_a_dead_broker_does_not_answer_and_the_next_one_does(world: SupervisorHarness) -> None:
    world.silent.add(world.serial("broker"))
    world.advance(2.0)
    assert [READY] == world.service_manager_texts

    world.kill_process(world.serial("broker"))
    assert [READY] == world.service_manager_texts

    world.advance(2.1)
    assert ["WATCHDOG=1"] == world.service_manager_texts[1:]


def test_stopping_is_said_once_and_life_until_the_end(world: SupervisorHarness) -> None:
    world.stubborn.add("grpc")
    world.stop()

    assert [
        "STOPPING=1\nSTATUS=stopping; 1 of 1 model versions are ready"
    ] == world.service_manager_texts[1:]
    world.advance(4.1)
    assert ["WATCHDOG=1", "WATCHDOG=1"] == world.service_manager_texts[2:]


def test_where_nobody_listens_nothing_is_said() -> None:
    world = SupervisorHarness(make_blueprint("m")).start()
    listen(world)

    world.advance(100.0)

    assert [] == world.service_manager_texts


def test_the_status_names_the_versions_that_count_and_are_not_ready() -> None:
    models = [make_blueprint(name) for name in "abcde"]
    names = tuple("abcde")
    world = SupervisorHarness(*models, control_mode="explicit", startup_models=names).start()
    world.call("unload", {"model": "a"})
    for name in "bcde":
        world.stub_behaviours[name] = HANGS
        world.kill_process(world.instance(name).serial)

    summary = world.call("status").result["server"]["ready"]

    missing = ", ".join(f"{name} version 1" for name in "bcd")
    assert f"0 of 4 model versions are ready, not {missing} and others" == summary


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
