"""The next broker's introduction to the time of the last one."""

from __future__ import annotations

import pytest

from zmqtriton.supervisor.server_processes.replay import PROPAGATION_S, BrokerReplay
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
    replay.acknowledge_death(S, 10.0)
    replay.forget_settled_deaths(10.0 + 2 * PROPAGATION_S)

    assert [OLD, NEW, REMOVED] == replay.all_messages()
    assert [] == replay.retirements()


def test_of_a_stub_that_has_just_ended_the_next_broker_hears(replay: BrokerReplay) -> None:
    replay.acknowledge_death(S, 10.0)
    replay.forget_settled_deaths(10.0)

    assert [EXPECTED, OLD, NEW, ATTACHED, GONE, REMOVED] == replay.all_messages()


def test_only_the_last_generations_that_have_ended_are_kept() -> None:
    replay = BrokerReplay()
    for number in range(1, 1001):
        replay.record(wire.ExpectPeer(number, b"t" * 16, "stub", "m_0", 0))
        replay.record(wire.AddGeneration(number, "m", 1, "{}"))
        replay.record(wire.AttachInstance(number, number, "m_0"))
        replay.record(wire.PeerDied(number, "exited"))
        replay.record(wire.RemoveGeneration(number, "unloaded"))

    told = replay.all_messages()

    assert wire.RemoveGeneration(1000, "unloaded") == told[-1]
    assert len(told) < 500
    assert not any(type(m) is wire.RemoveGeneration and m.generation == 1 for m in told)
