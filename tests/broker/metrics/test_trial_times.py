"""The times of versions that are compared, and the executions that go on."""

from __future__ import annotations

import random
from math import ceil

import pytest

from tests.broker.world import MILLISECOND, BrokerHarness, F, S, request
from zmqtriton.broker.metrics.trial_times import TrialTimes
from zmqtriton_floor import wire


def divide(world: BrokerHarness, stable: int = 1) -> None:
    world.core.generations.divide(wire.TrafficSplit("m", stable, 2, 0))


def test_nothing_is_kept_unless_the_version_is_compared(world: BrokerHarness) -> None:
    assert not {"trial", "executing_ns"} & world.figures().keys()
    divide(world)
    assert {"trial", "executing_ns"} <= world.figures().keys()
    divide(world, 0)
    assert not {"trial", "executing_ns"} & world.figures().keys()


def test_a_generation_that_comes_later_is_compared_too(world: BrokerHarness) -> None:
    divide(world)

    world.add_generation(2, version=2)

    assert world.core.generations[2].statistics.trial is not None


def test_requests_and_executions_are_counted_by_their_time(world: BrokerHarness) -> None:
    divide(world)
    world.infer(F, request(1))
    world.tick(100 * MILLISECOND)
    world.finish_batch(S)

    trial = world.figures()["trial"]

    ((request_ns, count),) = trial["request"].items()
    assert 1 == count
    assert 93 * MILLISECOND < int(request_ns) < 107 * MILLISECOND
    assert [1] == list(trial["compute"].values())


def test_the_ages_of_executions_are_told_by_instance(world: BrokerHarness) -> None:
    divide(world)
    world.add_stub(S + 1)
    world.infer(F, request(1))
    world.tick(5)
    assert [[0, 0], [5, 5]] == sorted(world.figures()["executing_ns"])

    world.infer(F, request(2))
    world.tick(4)
    assert [[4, 4], [9, 9]] == sorted(world.figures()["executing_ns"])

    world.finish_batch(S)
    assert 1 == world.figures()["executing_ns"].count([0, 0])


def test_an_execution_goes_on_though_its_client_has_left(world: BrokerHarness) -> None:
    divide(world)
    world.infer(F, request(1))
    world.cancel(F, 1)

    world.tick(7)
    figures = world.figures()
    assert [[7, 7]] == figures["executing_ns"]
    assert [1, 0, 0] == figures["unawaited"]

    world.finish_batch(S)
    assert [1, 1, 0] == world.figures()["unawaited"]


@pytest.mark.parametrize("percentage", [50, 90, 99])
def test_a_percentile_is_wrong_by_a_sixteenth_at_most(percentage: int) -> None:
    chosen = random.Random(1)
    values = sorted(int(chosen.lognormvariate(15, 2)) + 1024 for _ in range(2000))
    times = TrialTimes()
    for value in values:
        times.add_request(value)

    counts = {int(ns): count for ns, count in times.as_dict()["request"].items()}
    rank = ceil(percentage / 100 * len(values))
    exact, expanded = values[rank - 1], [ns for ns in sorted(counts) for _ in range(counts[ns])]

    assert expanded[rank - 1] == pytest.approx(exact, rel=1 / 15)
    assert len(counts) < 200
