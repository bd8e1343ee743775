"""The last error of a version, as those see it who look after the server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.broker.world import BrokerHarness, request
from zmqtriton.broker.metrics.reports import _MAX_ERROR
from zmqtriton_floor import wire

F, S = 2, 10
OFFSET_NS = 5_000_000_000


@pytest.fixture
def world() -> BrokerHarness:
    world = BrokerHarness()
    world.add_generation()
    world.add_frontend(F)
    world.add_stub(S)
    return world


def last_error(world: BrokerHarness) -> Any:
    world.core.ask_statistics(F, wire.AskStatistics(5, "m", -1), OFFSET_NS, world.now)
    world.drain_outbox()
    document = json.loads(world.supervisor_messages[-1].result)
    return document["model_stats"][0]["zmqtriton"].get("last_error")


def fail(world: BrokerHarness, own_id: int, text: str) -> None:
    world.infer(F, request(own_id))
    (work,) = world.batched_requests.pop(S)
    outcome = wire.Outcome(work.peer, work.id, 13, text, wire.FINAL)
    results = wire.Results([outcome], [wire.Executed(work.batch, 1, 2, 3)])
    world.core.results(S, results, [b""], world.now)
    world.drain_outbox()


def test_it_is_the_newest_that_no_client_wished(world: BrokerHarness) -> None:
    world.infer(F, request(1))
    world.finish_batch(S)
    assert last_error(world) is None

    fail(world, 2, "no feature store")
    world.tick(1_000_000_000)
    fail(world, 3, "x" * 10_000)
    error = last_error(world)
    assert "x" * _MAX_ERROR == error["text"]
    assert (world.now + OFFSET_NS) / 1e9 == error["at_s"]

    world.infer(F, request(4))
    world.cancel(F, 4)
    assert "x" * _MAX_ERROR == last_error(world)["text"]


def test_a_refusal_of_the_broker_s_own_is_one_too(world: BrokerHarness) -> None:
    world.infer(F, request(1))

    world.kill_peer(S)

    assert "killed by SIGKILL" in last_error(world)["text"]
