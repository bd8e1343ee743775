"""The next broker's introduction to the time of the last one."""

from __future__ import annotations

import pytest

from zmqtriton.supervisor.server_processes.replay import BrokerReplay
from zmqtriton_floor import wire

S = 5
EXPECTED = wire.ExpectPeer(S, b"t" * 16, "stub", "m_0", 0)
OLD, NEW = wire.AddGeneration(1, "m", 1, "{}"), wire.AddGeneration(2, "m", 1, "{}")
ATTACHED = wire.AttachInstance(1, S, "m_0")
GONE = wire.PeerDied(S, "exited")
REMOVED = wire.RemoveGeneration(1, "unloaded")


@pytest.fixture
def replay() -> BrokerReplay:
    """Generation 1 was reloaded and has ended."""
    replay = BrokerReplay()
    for message in (EXPECTED, OLD, ATTACHED, NEW, wire.Retire(1), GONE, REMOVED):
        replay.record(message)
    return replay


def test_a_generation_that_has_ended_and_its_successor_are_told_in_their_order(
    replay: BrokerReplay,
) -> None:
    replay.settle(wire.Settled(1, S))

    assert [OLD, NEW, REMOVED] == replay.all_messages()
    assert [] == replay.retirements()


def test_of_a_stub_whose_end_no_broker_has_settled_the_next_one_hears(
    replay: BrokerReplay,
) -> None:
    assert [EXPECTED, OLD, NEW, ATTACHED, GONE, REMOVED] == replay.all_messages()


def test_a_stub_that_was_settled_before_it_ends_is_expected_and_not_attached() -> None:
    replay = BrokerReplay()
    for message in (EXPECTED, OLD, ATTACHED, wire.Retire(1, S)):
        replay.record(message)

    replay.settle(wire.Settled(1, S))

    assert [EXPECTED, OLD] == replay.all_messages()
    assert [] == replay.retirements()
    assert replay.is_alive(S)
    replay.record(GONE)
    assert [OLD] == replay.all_messages()


def test_a_settled_generation_is_told_as_retired_at_once_and_any_other_later() -> None:
    replay = BrokerReplay()
    for message in (EXPECTED, OLD, ATTACHED, NEW, wire.Retire(1), wire.Retire(2)):
        replay.record(message)

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
        replay.record(wire.RemoveGeneration(number, "unloaded"))

    messages = replay.all_messages()

    assert wire.RemoveGeneration(1000, "unloaded") == messages[-1]
    assert len(messages) < 500
    assert not any(type(m) is wire.RemoveGeneration and m.generation == 1 for m in messages)


def test_a_process_that_lives_stays_expected_when_its_generation_is_forgotten() -> None:
    replay = BrokerReplay()
    replay.record(EXPECTED)
    replay.record(OLD)
    replay.record(ATTACHED)
    replay.record(wire.RemoveGeneration(OLD.generation, "unloaded"))
    for number in range(2, 1001):
        replay.record(wire.AddGeneration(number, "m", 1, "{}"))
        replay.record(wire.RemoveGeneration(number, "unloaded"))

    assert EXPECTED in replay.all_messages()
    assert ATTACHED not in replay.all_messages()
    assert replay.is_alive(S)


def test_a_division_that_is_over_is_not_told() -> None:
    replay = BrokerReplay()
    divided = wire.TrafficSplit("m", 1, 2, 1000, "", "", 0, "")
    replay.record(divided)
    assert [divided] == replay.all_messages()

    replay.record(divided._replace(stable=0, canary=0))
    replay.record(divided._replace(stable=0, canary=0))

    assert [] == replay.all_messages()
