"""The load of models, as balancers ask for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.broker.world import BrokerHarness, request
from zmqtriton.broker.metrics.reports import WINDOW_NS, RecentTimes
from zmqtriton.broker.metrics.statistics import ModelStatistics
from zmqtriton_floor import wire
from zmqtriton_floor.settings.broker import RequestLimits

F, S, S2 = 2, 10, 11
SECOND = 1_000_000_000


def document(world: BrokerHarness, model: str = "m") -> dict[str, Any]:
    world.core.ask_statistics(F, wire.AskStatistics(5, model, -1, 1), 0, world.now)
    world.drain_outbox()
    answer: dict[str, Any] = json.loads(world.supervisor_messages[-1].result)
    return answer


def load(world: BrokerHarness) -> dict[str, Any]:
    [entry] = document(world)["loads"]
    row: dict[str, Any] = entry
    return row


@pytest.fixture
def world() -> BrokerHarness:
    world = BrokerHarness()
    world.add_generation(config={"name": "m", "instance_group": [{"count": 2}]})
    world.add_frontend(F)
    world.add_stub(S)
    return world


@pytest.mark.row("L05")
def test_what_waits_and_what_is_executed_are_counted(world: BrokerHarness) -> None:
    world.infer(F, request(1), request(2), request(3))

    row = load(world)

    assert (2, 1, 3) == (row["queued"], row["executing"], row["unanswered"])
    assert (1, 2) == (row["ready"], row["instances"])
    assert (1, 1) == (row["slots"], row["busy_slots"])


def test_an_instance_that_died_is_neither_ready_nor_free(world: BrokerHarness) -> None:
    world.add_stub(S2)
    world.kill_peer(S2)

    row = load(world)

    assert (1, 2, 1, 0) == tuple(row[key] for key in ("ready", "instances", "slots", "busy_slots"))


def test_a_limit_is_told_if_there_is_one(world: BrokerHarness) -> None:
    without = load(world), document(world)
    world.core.limits.configure(RequestLimits(7, 3))

    documents = load(world), document(world)

    assert [0, 0] == [each["limit"] for each in without]
    assert [3, 7] == [each["limit"] for each in documents]


def test_all_models_are_told_of_and_those_that_end_are_not(world: BrokerHarness) -> None:
    world.core.add_generation(wire.AddGeneration(2, "n", 1, '{"name": "n"}'))
    before = [entry["name"] for entry in document(world, "")["loads"]]

    world.core.retire(wire.Retire(2))

    assert ["m", "n"] == before
    assert ["m"] == [entry["name"] for entry in document(world, "")["loads"]]
    assert [] == document(world, "gone")["loads"]


def test_mean_times_are_those_of_the_last_seconds() -> None:
    counters, recent = ModelStatistics(), RecentTimes()
    first = recent.read(counters, SECOND)
    counters.queue.add(2, 50)
    counters.compute_infer.add(2, 70)
    counters.compute_input.add(2, 7)

    soon = recent.read(counters, 3 * SECOND)
    still = recent.read(counters, SECOND + WINDOW_NS)
    later = recent.read(counters, 4 * SECOND + WINDOW_NS)

    assert {"requests": 0, "queue_ns": 0, "compute_ns": 0} == first
    assert {"requests": 2, "queue_ns": 50, "compute_ns": 77} == soon == still
    assert 0 == later["requests"]
