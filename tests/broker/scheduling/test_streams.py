"""Decoupled models with a bound of streams: what enters an instance, and what waits."""

from __future__ import annotations

import json
from typing import Any

from tests.broker.world import (
    MILLISECOND,
    S2,
    TOKEN,
    BrokerHarness,
    F,
    Page,
    S,
    outcome,
    request,
)
from zmqtriton_floor import wire
from zmqtriton_floor.errors import DeadlineExceeded
from zmqtriton_floor.settings.broker import BrokerSettings

DECOUPLED = {"model_transaction_policy": {"decoupled": True}}


def bounded(streams: int, **more: Any) -> dict[str, Any]:
    return {"parameters": {"MAX_STREAMS": {"string_value": str(streams)}}, **DECOUPLED, **more}


def serving(streams: int, *stubs: int, **more: Any) -> BrokerHarness:
    return BrokerHarness.serving(*(stubs or (S,)), config=bounded(streams, **more), has_pages=True)


def begin_streams(world: BrokerHarness, serial: int = S) -> list[int]:
    """Have a stub return from all of its batches; its requests stay open."""
    streams = []
    while world.batched_requests.get(serial):
        batch = world.take_batch(serial)
        streams += [work.id for work in batch]
        world.send_results(serial, executed=[wire.Executed(batch[0].batch, 1, 2, 3)])
    return streams


def infer(world: BrokerHarness, *ids: int, **fields: Any) -> None:
    world.infer(F, *(request(own_id, **fields) for own_id in ids))


def test_as_many_streams_are_open_as_the_model_allows() -> None:
    world = serving(2)

    infer(world, 1, 2, 3, 4)
    assert [1, 2] == begin_streams(world)
    assert 2 == world.figures()["pending"]

    world.send_results(S, outcome(2))
    assert [3] == begin_streams(world)
    world.send_results(S, outcome(1), outcome(3))
    assert [4] == begin_streams(world)
    assert {"open": 1, "room": 1, "limit": 2} == world.figures()["streams"]


def test_a_response_that_is_not_the_last_makes_no_room() -> None:
    world = serving(1)
    infer(world, 1, 2)
    begin_streams(world)

    world.send_results(S, outcome(1, flags=0))

    assert [] == begin_streams(world)


def test_a_batch_is_no_larger_than_the_room_for_streams() -> None:
    world = serving(3, dynamic_batching={}, max_batch_size=8)

    infer(world, 1, 2, 3, 4, 5)

    assert [1, 2, 3] == begin_streams(world)
    world.send_results(S, outcome(1))
    assert [4] == begin_streams(world)
    world.send_results(S, outcome(2))
    assert [5] == begin_streams(world)


def test_the_instance_with_the_fewest_streams_is_next() -> None:
    world = serving(4, S, S2)

    for own_id in range(1, 7):
        infer(world, own_id)
        begin_streams(world)
        begin_streams(world, S2)

    assert [3, 3] == [len(world.core.instances[serial].open_requests) for serial in (S, S2)]


def test_what_waits_for_a_stream_has_the_rules_of_the_queue() -> None:
    policy = {"max_queue_size": 3}
    batching = {"default_queue_policy": policy, "priority_levels": 2, "default_priority_level": 2}
    world = serving(1, dynamic_batching=batching, max_batch_size=1)
    infer(world, 1)
    begin_streams(world)

    infer(world, 2, deadline_ns=world.now + MILLISECOND)
    infer(world, 3)
    infer(world, 4)
    infer(world, 5)
    infer(world, 6, priority=1)
    world.cancel(F, 3)
    world.tick(2 * MILLISECOND)

    assert "Exceeds maximum queue size" in world.texts(5)[0]
    assert DeadlineExceeded.number == world.finals(F, 2)[0].code
    assert ["request was cancelled"] == world.texts(3)
    world.send_results(S, outcome(1))
    assert [6] == begin_streams(world)
    world.send_results(S, outcome(6))
    assert [4] == begin_streams(world)


def test_a_cancelled_stream_has_its_place_until_it_ends() -> None:
    world = serving(1)
    infer(world, 1, 2)
    begin_streams(world)

    world.cancel(F, 1)
    assert [] == begin_streams(world)
    world.send_results(S, outcome(1))

    assert [2] == begin_streams(world)


def test_streams_of_a_dead_instance_make_room_in_the_next() -> None:
    world = serving(1)
    infer(world, 1, 2)
    begin_streams(world)

    world.kill_peer(S)
    assert [] == world.finals(F, 2)
    world.add_stub(S2)

    assert [2] == begin_streams(world, S2)
    assert "is not healthy" in world.texts(1)[0]


def test_an_instance_with_several_batches_at_once_has_no_more_streams() -> None:
    config = bounded(2)
    config["parameters"]["MAX_INFLIGHT"] = {"string_value": "8"}
    world = BrokerHarness.serving(S, config=config, has_pages=True, concurrency=8)

    infer(world, 1, 2, 3)

    assert [1, 2] == world.executing()


def test_a_rate_limited_instance_has_no_more_streams() -> None:
    world = BrokerHarness.serving(config=bounded(1))
    world.add_stub(S, demand=json.dumps({"needs": [], "priority": 1}))

    infer(world, 1, 2)
    assert [1] == begin_streams(world)
    world.send_results(S, outcome(1))

    assert [2] == begin_streams(world)


def test_a_model_that_is_not_decoupled_has_no_streams() -> None:
    config = bounded(1)
    config["parameters"]["MAX_INFLIGHT"] = {"string_value": "2"}
    del config["model_transaction_policy"]
    world = BrokerHarness.serving(S, config=config, has_pages=True, concurrency=2)

    infer(world, 1, 2)

    assert [1, 2] == world.executing()
    assert "streams" not in world.figures()


def test_streams_of_an_earlier_broker_count_before_they_are_repeated() -> None:
    world = BrokerHarness.serving(config=bounded(2), settings=BrokerSettings(), epoch=2)
    world.expect_stub(S)
    world.attach(S, page=Page())
    received = [wire.RequestKey(F, 1), wire.RequestKey(F, 2)]
    world.core.connected(wire.Hello(S, TOKEN, 2, received), [], world.now)
    world.drain_outbox()

    infer(world, 3)
    assert [] == begin_streams(world)
    infer(world, 1, flags=wire.RESENT)
    assert [] == begin_streams(world)
    world.send_results(S, outcome(2))

    assert [3] == begin_streams(world)


def test_a_call_waits_for_a_stream_that_may_end_by_itself() -> None:
    config = bounded(1)
    config["parameters"]["MAX_INFLIGHT"] = {"string_value": "2"}
    world = BrokerHarness.serving(S, config=config, has_pages=True, concurrency=2)
    infer(world, 1)
    begin_streams(world)

    world.infer(S, request(1, 1))
    world.tick(10_000 * MILLISECOND)

    assert [] == world.finals(S, 1)
    world.send_results(S, outcome(1))
    assert [1] == world.executing()
