"""What the next broker is told of the time of the last one."""

from __future__ import annotations

import pytest

from zmqtriton.supervisor.fleet.replay import SETTLED_S, Replay
from zmqtriton_floor import wire

S = 5
EXPECTED = wire.ExpectPeer(S, b"t" * 16, "stub", "m_0", 0)
OLD, NEW = wire.AddGeneration(1, "m", 1, "{}"), wire.AddGeneration(2, "m", 1, "{}")
ATTACHED = wire.AttachInstance(1, S, "m_0")
GONE = wire.PeerDied(S, "exited")
REMOVED = wire.RemoveGeneration(1, "unloaded")


@pytest.fixture
def replay() -> Replay:
    """Generation 1 was reloaded and has ended."""
    replay = Replay()
    for message in (EXPECTED, OLD, ATTACHED, NEW, wire.Retire(1), GONE, REMOVED):
        replay.note(message)
    return replay


def test_a_generation_that_has_ended_and_its_successor_are_told_in_their_order(
    replay: Replay,
) -> None:
    replay.death_seen(S, 10.0)
    replay.forget_settled(10.0 + 2 * SETTLED_S)

    assert [OLD, NEW, REMOVED] == replay.everything()
    assert [] == replay.retired()


def test_of_a_stub_that_has_just_ended_the_next_broker_hears(replay: Replay) -> None:
    replay.death_seen(S, 10.0)
    replay.forget_settled(10.0)

    assert [EXPECTED, OLD, NEW, ATTACHED, GONE, REMOVED] == replay.everything()


def test_only_the_last_generations_that_have_ended_are_kept() -> None:
    replay = Replay()
    for number in range(1, 1001):
        replay.note(wire.ExpectPeer(number, b"t" * 16, "stub", "m_0", 0))
        replay.note(wire.AddGeneration(number, "m", 1, "{}"))
        replay.note(wire.AttachInstance(number, number, "m_0"))
        replay.note(wire.PeerDied(number, "exited"))
        replay.note(wire.RemoveGeneration(number, "unloaded"))

    told = replay.everything()

    assert wire.RemoveGeneration(1000, "unloaded") == told[-1]
    assert len(told) < 500
    assert not any(type(m) is wire.RemoveGeneration and m.generation == 1 for m in told)
