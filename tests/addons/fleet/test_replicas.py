"""The number of nodes that a model should have."""

from __future__ import annotations

import pytest

from zmqtriton_addons.fleet.replicas import ModelLoad, ReplicaLimits, ReplicaTarget, parse_replicas
from zmqtriton_floor.errors import InvalidArgument

LIMITS = ReplicaLimits(1, 3, waiting=4, up_after_s=5, down_after_s=60)
CROWDED = ModelLoad(queued=9, instances=2, utilization=1)
STEADY = ModelLoad(queued=8, instances=2, utilization=1)
IDLE = ModelLoad(queued=0, instances=2, utilization=0.1)
NODES = 3


def target_of(count: int) -> ReplicaTarget:
    target = ReplicaTarget(LIMITS)
    target.count = count
    return target


def decisions(target: ReplicaTarget, load: ModelLoad, seconds: int) -> list[int]:
    """A look in each second, at nodes where each decision has taken effect at once."""
    return [target.decide(load, target.count, NODES, second) for second in range(seconds)]


def test_more_are_wanted_when_requests_have_waited_for_long_enough() -> None:
    assert [1] * 5 + [2] * 6 + [3] * 9 == decisions(target_of(1), CROWDED, 20)


def test_fewer_are_wanted_after_a_long_time_without_work() -> None:
    assert [2] * 60 + [1] * 100 == decisions(target_of(2), IDLE, 160)


def test_a_steady_load_has_a_steady_number() -> None:
    assert {2} == set(decisions(target_of(2), STEADY, 1000))


def test_a_short_burst_changes_nothing() -> None:
    target = target_of(1)
    loads = [CROWDED] * 4 + [STEADY] + [CROWDED] * 4

    assert {1} == {target.decide(load, 1, NODES, second) for second, load in enumerate(loads)}


def test_nothing_is_decided_before_the_last_decision_has_taken_effect() -> None:
    target = target_of(2)

    assert {2} == {target.decide(CROWDED, 1, NODES, second) for second in range(100)}
    assert {2} == {target.decide(CROWDED, 2, NODES, 100 + second) for second in range(5)}
    assert 3 == target.decide(CROWDED, 2, NODES, 105)


def test_no_more_are_wanted_than_there_are_nodes() -> None:
    target = target_of(2)

    assert {2} == {target.decide(CROWDED, 2, 2, second) for second in range(100)}


@pytest.mark.parametrize(
    ("text", "limits"), [("m=2", ReplicaLimits(2, 2)), ("m=1-4", ReplicaLimits(1, 4))]
)
def test_a_number_or_two_are_understood(text: str, limits: ReplicaLimits) -> None:
    assert ("m", limits) == parse_replicas(text)


@pytest.mark.parametrize("text", ["m", "m=", "=2", "m=0", "m=3-2", "m=two", "m=1-"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"MODEL=N|the least"):
        parse_replicas(text)
