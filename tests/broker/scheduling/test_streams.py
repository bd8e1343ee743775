"""Decoupled models with a bound of streams: what enters an instance, and what waits."""

from __future__ import annotations

from typing import Any

from tests.broker.world import (
    TOKEN,
    BrokerHarness,
    F,
    Page,
    S,
    outcome,
    request,
)
from zmqtriton_floor import wire
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
    assert ([1, 2], 2) == (begin_streams(world), world.figures()["pending"])

    world.send_results(S, outcome(2))
    assert [3] == begin_streams(world)
    world.send_results(S, outcome(1), outcome(3))
    assert [4] == begin_streams(world)
    assert {"open": 1, "room": 1, "limit": 2} == world.figures()["streams"]


def test_any_number_is_open_where_the_model_says_nothing() -> None:
    world = BrokerHarness.serving(S, config=DECOUPLED, has_pages=True)

    infer(world, 1, 2, 3)

    assert [1, 2, 3] == begin_streams(world)


def test_a_batch_is_no_larger_than_the_room_for_streams() -> None:
    world = serving(3, dynamic_batching={}, max_batch_size=8)

    infer(world, 1, 2, 3, 4, 5)

    assert [1, 2, 3] == begin_streams(world)
    world.send_results(S, outcome(1))
    assert [4] == begin_streams(world)
    world.send_results(S, outcome(2))
    assert [5] == begin_streams(world)


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
