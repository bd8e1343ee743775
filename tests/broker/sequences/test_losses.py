"""The sequences that are known to be lost, and for how long."""

from __future__ import annotations

from zmqtriton.broker.sequences.losses import _MAX_CAUSES, LostSequences
from zmqtriton_floor.errors import Unavailable

DEAD, FORGOTTEN = Unavailable("its stub died"), Unavailable("the broker died")


def test_a_lost_sequence_is_known_until_it_is_dropped() -> None:
    lost = LostSequences(100)
    assert lost.find_cause(5, 0) is None

    lost.add(5, DEAD)
    assert (DEAD, None) == (lost.find_cause(5, 10**9), lost.find_cause("5", 0))

    lost.drop(5)
    lost.drop(5)
    assert lost.find_cause(5, 0) is None


def test_the_newest_are_remembered() -> None:
    lost = LostSequences(100)
    for correlation in range(_MAX_CAUSES + 1):
        lost.add(correlation, DEAD)

    assert (None, DEAD, DEAD) == tuple(lost.find_cause(one, 0) for one in (0, 1, _MAX_CAUSES))


def test_those_of_an_earlier_broker_may_be_any_until_all_clients_were_here_and_idle() -> None:
    lost, recovered_ns = LostSequences(100), 0
    lost.assume_earlier_lost(FORGOTTEN, lambda: recovered_ns)
    lost.add(5, DEAD)
    assert DEAD is lost.find_cause(5, 900)
    assert FORGOTTEN is lost.find_cause(6, 10**9)  # a client may still come that has it

    recovered_ns = 1000
    assert FORGOTTEN is lost.find_cause(7, 1099)
    assert lost.find_cause(8, 1100) is None
    assert FORGOTTEN is lost.find_cause(6, 1100), "what was told once is told again"
