"""The number of instances that a model should have, decided over days of simulated load."""

from __future__ import annotations

import random

import pytest

from tests.supervisor.features.scaling.service_station import ServiceStation
from zmqtriton.config.autoscale import AutoscaleLimits
from zmqtriton.supervisor.features.scaling.autoscaler import InstanceTarget
from zmqtriton.supervisor.features.scaling.workload import Reading, Workload

pytestmark = pytest.mark.row("L06")

LIMITS = AutoscaleLimits(1, 8, queue_s=0.05, down_after_s=30.0)


def station(
    limits: AutoscaleLimits = LIMITS, *, seconds_each: float = 0.02, seed: int = 1
) -> ServiceStation:
    return ServiceStation(InstanceTarget(limits), seconds_each=seconds_each, seed=seed)


def test_a_load_that_rises_tenfold_gets_what_it_needs_at_once() -> None:
    served = station()
    served.run(30, per_second=20)
    assert 1 == served.instances

    served.run(30, per_second=200)

    assert 5 <= served.instances <= 8
    # four busy instances' worth arrives; after two seconds nobody waits for long
    assert max(wait for came, wait in served.waits if came > 32) < LIMITS.queue_s


def test_a_load_that_falls_keeps_what_it_had_for_a_while() -> None:
    served = station()
    served.run(30, per_second=200)

    served.run(25, per_second=20)
    assert served.instances >= 5
    served.run(40, per_second=20)

    assert served.instances <= 2


@pytest.mark.parametrize("per_second", [30, 100, 170, 240, 310])
def test_a_steady_load_has_a_steady_number(per_second: int) -> None:
    served = station()
    served.run(120, per_second=per_second)
    counted = len(served.changes)

    served.run(300, per_second=per_second)

    assert len(served.changes) - counted <= 6, served.changes[counted:]
    late = [wait for came, wait in served.waits if came > 120]
    assert sum(wait > 0.1 for wait in late) / len(late) < 0.01


def test_bounds_are_kept() -> None:
    limits = LIMITS._replace(minimum=2, maximum=3)
    served = station(limits)

    served.run(60, per_second=0.1)
    assert 2 == served.instances
    served.run(60, per_second=400)
    assert 3 == served.instances


@pytest.mark.parametrize("seed", range(16))
def test_whatever_comes_the_bounds_hold_and_the_load_is_followed(seed: int) -> None:
    """A day of loads, executions and bounds by chance."""
    chance = random.Random(seed)
    least = chance.randint(1, 3)
    limits = AutoscaleLimits(
        least, least + chance.randint(0, 10), chance.choice([0.005, 0.05, 1]), 10
    )
    seconds_each = chance.choice([0.02, 0.3])
    served = station(limits, seconds_each=seconds_each, seed=seed)
    for _ in range(8):
        busy = chance.choice([0, 0.1, 0.5, 0.9]) * limits.maximum
        served.run(chance.uniform(1, 30), per_second=busy / seconds_each)
        assert limits.minimum <= served.instances <= limits.maximum
    served.run(60, per_second=0.8 * limits.maximum / seconds_each)
    assert served.instances >= 0.8 * limits.maximum
    served.run(60, per_second=0)
    assert limits.minimum == served.instances


def test_requests_that_nothing_is_known_of_get_one_more_at_a_time() -> None:
    """The first execution takes a minute."""
    target = InstanceTarget(LIMITS)
    counts = []
    instances = 1
    for turn in range(12):
        reading = Reading(turn * 0.25, 0, 9, 9 - instances, turn * 0.25 * instances)
        instances = target.decide(reading, instances)
        counts.append(instances)

    assert counts == sorted(counts)
    assert 1 < instances <= LIMITS.maximum
    assert "requests wait" in target.reason


def test_counters_that_begin_anew_are_not_taken_for_a_load() -> None:
    load = Workload()
    load.add(Reading(1.0, 1000, 0, 0, 50.0))
    load.add(Reading(2.0, 1100, 0, 0, 52.0))
    estimates = (load.arrival_rate, load.seconds_per_request)

    load.add(Reading(3.0, 5, 2, 0, 0.1))

    assert estimates == (load.arrival_rate, load.seconds_per_request)
    assert pytest.approx((100, 0.02)) == estimates


def test_two_readings_of_one_moment_are_one() -> None:
    load = Workload()
    load.add(Reading(1.0, 1000, 0, 0, 50.0))
    load.add(Reading(1.0, 1100, 3, 2, 52.0))

    assert (0, 2) == (load.arrival_rate, load.waiting)


def test_an_execution_that_takes_many_looks_is_counted_whole() -> None:
    """The broker counts an execution as it goes on, and its request when it ends."""
    load = Workload()
    for look in range(1, 81):
        at_s = look * 0.25
        load.add(Reading(at_s, answered=int(at_s // 5), unanswered=1, waiting=0, busy_s=at_s))

    assert pytest.approx(5, rel=0.1) == load.seconds_per_request
    assert pytest.approx(1) == load.busy_instances


def test_requests_that_would_wait_for_a_long_execution_get_another_instance() -> None:
    limits = LIMITS._replace(queue_s=1.0)
    target = InstanceTarget(limits)
    instances = 1
    for look in range(1, 25):
        at_s = look * 0.25
        instances = target.decide(Reading(at_s, int(at_s // 5), 1, 0, at_s), instances)
    assert 1 == instances

    instances = target.decide(Reading(6.25, 1, 2, 1, 6.25), instances)

    assert instances > 1
    assert "requests wait about" in target.reason


def test_instances_stay_that_execute_for_longer_than_a_calm_takes() -> None:
    """Nothing arrives, waits or ends: what is executed now keeps its instances."""
    target = InstanceTarget(LIMITS._replace(down_after_s=30.0))
    chosen = [
        target.decide(Reading(at_s, 0, 4, 0, 4.0 * at_s), 4) for at_s in map(float, range(1, 120))
    ]
    assert {4} == set(chosen)

    # When the executions have ended
    for at_s in map(float, range(120, 200)):
        count = target.decide(Reading(at_s, 4, 0, 0, 480.0), 4)

    assert 1 == count
