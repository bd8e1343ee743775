"""The growth of models' counters, as the history asks for it."""

from __future__ import annotations

import gc
import json
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from tests.broker.world import BrokerHarness, request
from zmqtriton.broker.metrics.statistics import MAX_LATENCIES
from zmqtriton_floor import wire

F, S = 2, 10
MILLISECOND = 1_000_000


def read(world: BrokerHarness) -> dict[str, Any]:
    world.core.ask_statistics(F, wire.AskStatistics(5, "", -1, wire.READINGS), 0, world.now)
    world.drain_outbox()
    answer: dict[str, Any] = json.loads(world.supervisor_messages[-1].result)
    return answer


@pytest.fixture
def world() -> BrokerHarness:
    world = BrokerHarness()
    world.tick(1)
    world.add_generation()
    world.add_frontend(F)
    world.add_stub(S)
    return world


def answer(world: BrokerHarness, own_id: int, after_ns: int) -> None:
    world.infer(F, request(own_id))
    world.tick(after_ns)
    world.finish_batch(S)


def test_it_is_what_came_since_the_last_question(world: BrokerHarness) -> None:
    answer(world, 1, MILLISECOND)
    assert [] == read(world)["readings"], "the first question only begins"

    answer(world, 2, 3 * MILLISECOND)
    answer(world, 3, 3 * MILLISECOND)
    reply = read(world)

    [row] = reply["readings"]
    assert ("m", 1, 2, 0, 2) == tuple(
        row[key] for key in ("model", "version", "succeeded", "failed", "executions")
    )
    assert (3 * MILLISECOND, 3 * MILLISECOND) == (row["p50_ns"], row["p99_ns"])
    assert 0.006 == pytest.approx(reply["seconds"])


def test_a_model_without_news_is_left_out(world: BrokerHarness) -> None:
    read(world)
    world.tick(1)
    answer(world, 1, MILLISECOND)
    assert 1 == len(read(world)["readings"])

    world.tick(1)
    assert [] == read(world)["readings"]

    world.infer(F, request(2))
    world.tick(1)
    assert [0] == [row["succeeded"] for row in read(world)["readings"]], "it is executing"
    world.tick(MILLISECOND)
    world.finish_batch(S)
    assert [1] == [row["succeeded"] for row in read(world)["readings"]]


def test_what_was_removed_since_the_last_question_is_not_forgotten(world: BrokerHarness) -> None:
    read(world)
    answer(world, 1, MILLISECOND)
    world.infer(F, request(2))

    world.core.remove(wire.RemoveGeneration(1, "gave up"), world.now)
    world.tick(1)

    [row] = read(world)["readings"]
    assert ["m", 1, 1, 0] == [row[key] for key in ("model", "succeeded", "failed", "pending")]
    world.tick(1)
    assert [] == read(world)["readings"]


def test_what_was_removed_is_told_once(world: BrokerHarness) -> None:
    read(world)
    answer(world, 1, MILLISECOND)
    world.core.remove(wire.RemoveGeneration(1, "gave up"), world.now)
    assert [1] == [row["succeeded"] for row in read(world)["readings"]]

    world.tick(1)
    read(world)
    world.tick(1)

    assert [] == read(world)["readings"], "nor is it news after a question without it"


def test_a_model_that_was_quiet_is_measured_whole_again(world: BrokerHarness) -> None:
    counters = world.core.generations[1].statistics
    read(world)
    for number in range(8 * MAX_LATENCIES):
        arrived = SimpleNamespace(arrived_ns=number, elements=1, is_cancelled=False)
        counters.record_success(arrived, number + 1)
    world.tick(1)
    assert 1 == len(read(world)["readings"])
    assert counters.latencies_mask, "a busy model's latencies are a sample"

    world.tick(1)
    assert [] == read(world)["readings"]
    answer(world, 1, MILLISECOND)
    answer(world, 2, 3 * MILLISECOND)

    [row] = read(world)["readings"]
    assert (MILLISECOND, 3 * MILLISECOND) == (row["p50_ns"], row["p99_ns"])


def test_the_latencies_of_an_interval_are_not_those_of_the_next(world: BrokerHarness) -> None:
    read(world)
    answer(world, 1, 9 * MILLISECOND)
    assert 9 * MILLISECOND == read(world)["readings"][0]["p99_ns"]

    answer(world, 2, MILLISECOND)

    assert MILLISECOND == read(world)["readings"][0]["p99_ns"]


def test_what_was_given_up_and_comes_back_has_grown_from_nothing(world: BrokerHarness) -> None:
    read(world)
    for own_id in (1, 2, 3):
        answer(world, own_id, MILLISECOND)
    read(world)
    world.core.remove(wire.RemoveGeneration(1, "gave up"), world.now)

    world.add_generation()
    world.add_stub(S + 1)
    world.infer(F, request(4))
    world.tick(MILLISECOND)
    world.finish_batch(S + 1)

    [row] = read(world)["readings"]
    assert [1, 1, 1] == [row[key] for key in ("succeeded", "inferences", "executions")]


def test_what_is_removed_is_not_kept_where_nobody_asks(world: BrokerHarness) -> None:
    generation = weakref.ref(world.core.generations[1])

    world.core.remove(wire.RemoveGeneration(1, "gave up"), world.now)

    gc.collect()
    assert generation() is None


def test_quantiles_of_a_busy_model_are_of_all_the_interval(world: BrokerHarness) -> None:
    """The first interval tells how busy it is; in the second every fourth request is slow."""
    counters = world.core.generations[1].statistics
    read(world)
    for _ in range(2):
        for number in range(20 * MAX_LATENCIES):
            is_slow = number < 5 * MAX_LATENCIES
            arrived_ns = 0 if is_slow else 99
            arrived = SimpleNamespace(arrived_ns=arrived_ns, elements=1, is_cancelled=False)
            counters.record_success(arrived, 100)
        world.tick(1)
        [row] = read(world)["readings"]

    assert (1, 100) == (row["p50_ns"], row["p99_ns"])
