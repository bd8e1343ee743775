"""The growth of models' counters, as the history asks for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.broker.world import BrokerHarness, request
from zmqtriton_floor import wire

F, S = 2, 10
MILLISECOND = 1_000_000


def read(world: BrokerHarness) -> dict[str, Any]:
    world.core.ask_statistics(F, wire.AskStatistics(5, "", -1, wire.READINGS), 0, world.now)
    world.drain_outbox()
    found: dict[str, Any] = json.loads(world.supervisor_messages[-1].result)
    return found


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
    found = read(world)

    [row] = found["readings"]
    assert ("m", 1, 2, 0, 2) == tuple(
        row[key] for key in ("model", "version", "succeeded", "failed", "executions")
    )
    [bucket] = [number for number, count in enumerate(row["latencies"]) if count == 2]
    bounds = found["bounds_ns"]
    assert bounds[bucket - 1] < 3 * MILLISECOND <= bounds[bucket]
    assert 0.006 == pytest.approx(found["seconds"])


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
