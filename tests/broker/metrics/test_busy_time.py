"""The time that instances have been executing, as the broker counts it for the metrics."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.broker.world import BrokerHarness, request
from zmqtriton.broker.metrics.reports import execution_age_ns
from zmqtriton.broker.requests.inflight import Batch
from zmqtriton_floor import wire

F, S, S2 = 2, 10, 11


@pytest.fixture
def world() -> BrokerHarness:
    world = BrokerHarness()
    world.add_generation()
    world.add_frontend(F)
    world.add_stub(S)
    return world


def occupancy(world: BrokerHarness) -> dict[str, Any]:
    world.core.ask_statistics(F, wire.AskStatistics(5, "m", -1), 0, world.now)
    world.drain_outbox()
    (entry,) = json.loads(world.supervisor_messages[-1].result)["model_stats"]
    own: dict[str, Any] = entry["zmqtriton"]
    return own


def test_an_instance_is_busy_while_it_executes(world: BrokerHarness) -> None:
    world.now += 500
    world.infer(F, request(1))

    world.now += 30
    amid = occupancy(world)
    world.now += 20
    world.finish_batch(S)
    world.now += 1000
    after = occupancy(world)

    assert (30, 50) == (amid["busy_ns"], after["busy_ns"])
    assert 30 == amid["oldest_execution_ns"]
    assert "oldest_execution_ns" not in after
    assert (1, 0) == (amid["unanswered"], after["unanswered"])


def ages(world: BrokerHarness) -> dict[str, int]:
    """Return for how long each instance executes, by its serial."""
    world.core.ask_statistics(F, wire.AskStatistics(5, "m", -1), 0, world.now)
    world.drain_outbox()
    document = json.loads(world.supervisor_messages[-1].result)
    return dict(document["zmqtriton"]["execution_ages_ns"])


def test_an_execution_is_as_old_as_it_is_whatever_others_do(world: BrokerHarness) -> None:
    world.add_stub(S2)
    world.infer(F, request(1), request(2))
    world.now += 100
    world.finish_batch(S2)
    world.infer(F, request(3))
    world.now += 10

    assert {str(S): 110, str(S2): 10} == ages(world)
    own = occupancy(world)
    assert (110, 6) == (own["oldest_execution_ns"], own["usual_execution_ns"])
    world.finish_batch(S)
    world.finish_batch(S2)
    assert {} == ages(world)


def test_of_executions_beside_each_other_the_oldest_counts(world: BrokerHarness) -> None:
    world.core.instances[S].concurrency = 2
    instance = world.core.instances[S]
    for number, at_ns in ((1, 100), (2, 150)):
        instance.dispatch(Batch(number, [], at_ns))

    instance.finish_batch(2, 200)

    assert 200 == execution_age_ns(instance, 300)


def test_two_instances_are_busy_each_for_itself(world: BrokerHarness) -> None:
    world.add_stub(S2)
    world.infer(F, request(1), request(2))
    world.now += 100

    row = occupancy(world)

    assert (200, 2) == (row["busy_ns"], row["instances"])


def test_what_a_dead_instance_was_busy_is_not_taken_back(world: BrokerHarness) -> None:
    world.infer(F, request(1))
    world.now += 70
    before = occupancy(world)["busy_ns"]

    world.core.remove_peer(wire.PeerDied(S, "killed by SIGKILL"), world.now)
    world.drain_outbox()
    world.now += 1000

    row = occupancy(world)
    assert (70, 70, 0) == (before, row["busy_ns"], row["instances"])


def test_one_that_nobody_asks_is_not_busy(world: BrokerHarness) -> None:
    world.now += 1_000_000

    assert occupancy(world)["busy_ns"] == 0
