"""Instances that take several batches, requests that are executed again, and circles of waiting."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.broker.world import TOKEN, BrokerHarness, Page, request
from zmqtriton_floor import wire

F, S, S2, S3 = 1, 2, 3, 4
_ITERATIVE = {"name": "m", "sequence_batching": {"iterative_sequence": True}}
_WIDE = {"name": "m", "parameters": {"MAX_INFLIGHT": {"string_value": "3"}}}


def _world(config: dict[str, Any] | None = None) -> BrokerHarness:
    world = BrokerHarness()
    world.add_generation(config=config)
    world.add_frontend(F)
    return world


def _stub(world: BrokerHarness, serial: int, generation: int = 1, **hello: Any) -> None:
    world.core.expect(wire.ExpectPeer(serial, TOKEN, "stub", f"m_{serial}", 0))
    world.core.connected(wire.Hello(serial, TOKEN, 1, **hello), [], world.now)
    page: Any = Page()
    attach = wire.AttachInstance(generation, serial, f"m_{serial}")
    world.core.attach(attach, world.now, page)
    world.drain_outbox()


def _ids(world: BrokerHarness, serial: int) -> list[int]:
    return [work.id for work in world.batched_requests.get(serial, [])]


# ------------------------------------------------------------------- slots


def test_an_instance_is_given_as_many_batches_as_it_executes_at_once() -> None:
    world = _world(_WIDE)
    _stub(world, S, concurrency=3)

    world.infer(F, *[request(i) for i in range(1, 6)])
    assert [1, 2, 3] == _ids(world, S)

    world.finish_batch(S)
    assert [2, 3, 4] == _ids(world, S)


def test_idle_instances_go_before_those_with_room() -> None:
    world = _world(_WIDE)
    _stub(world, S, concurrency=3)
    _stub(world, S2, concurrency=3)

    world.infer(F, *[request(i) for i in range(1, 8)])

    assert (3, 3) == (len(_ids(world, S)), len(_ids(world, S2)))


def test_batches_may_end_in_any_order() -> None:
    world = _world(_WIDE)
    _stub(world, S, concurrency=3)
    world.infer(F, *[request(i) for i in (1, 2, 3)])
    last = world.batched_requests[S].pop()

    outcome = wire.Outcome(F, last.id, 0, "", wire.FINAL)
    results = wire.Results([outcome], [wire.Executed(last.batch, 1, 1, 1)])
    world.core.results(S, results, [b""], world.now)
    world.drain_outbox()
    world.finish_batch(S)
    world.finish_batch(S)

    assert [1, 1, 1] == [len(world.finals(F, i)) for i in (1, 2, 3)]
    assert 0 == world.core.traffic.malformed


def test_what_an_instance_was_in_when_the_broker_died_takes_its_slots() -> None:
    world = _world(_WIDE)
    _stub(world, S, concurrency=3, is_executing=2)
    world.infer(F, request(1), request(2), request(3))
    assert [1] == _ids(world, S)

    for _ in range(2):
        world.core.results(S, wire.Results([], [wire.Executed(77, 1, 1, 1)]), [], world.now)
        world.drain_outbox()

    assert [1, 2, 3] == _ids(world, S)
    assert 0 == world.core.traffic.malformed


# ------------------------------------------------------------ executed again


def _again(world: BrokerHarness, serial: int) -> None:
    """The stub wants what it executes back."""
    work = world.batched_requests[serial].pop(0)
    routes = [wire.RequestKey(work.peer, work.id)]
    results = wire.Results([], [wire.Executed(work.batch, 1, 1, 1)], routes)
    world.core.results(serial, results, [], world.now)
    world.drain_outbox()


def test_a_rescheduled_request_comes_again_without_start_to_the_same_stub() -> None:
    world = _world(_ITERATIVE)
    _stub(world, S)
    _stub(world, S2)
    world.infer(F, request(1))
    [serial] = [s for s in (S, S2) if world.batched_requests.get(s)]
    [first] = world.batched_requests[serial]

    _again(world, serial)

    [second] = world.batched_requests[serial]
    assert (first.id, first.correlation) == (second.id, second.correlation)
    assert [wire.SEQUENCE_START, 0] == [first.flags, second.flags]


def test_a_slot_is_free_when_its_request_is_answered() -> None:
    world = _world(_ITERATIVE)
    _stub(world, S)
    world.infer(F, request(1), request(2))

    _again(world, S)
    assert [1] == _ids(world, S)
    world.finish_batch(S)

    assert [2] == _ids(world, S)


def test_a_cancelled_request_is_not_executed_again_and_its_stub_is_told() -> None:
    world = _world(_ITERATIVE)
    _stub(world, S)
    world.infer(F, request(1))
    world.cancel(F, 1)

    _again(world, S)

    assert [] == _ids(world, S)
    assert 1 == len(world.finals(F, 1))
    assert [(S, wire.RequestKey(F, 1))] * 2 == world.cancelled_executions
    assert 0 == world.core.generations.schedulers[1].pending


def test_what_was_executed_dies_with_its_stub_also_while_it_waits() -> None:
    world = _world(_ITERATIVE)
    _stub(world, S)
    world.infer(F, request(1))
    _again(world, S)  # and is sent again, to a stub whose page says that it has not begun it

    world.kill_peer(S)

    [final] = world.finals(F, 1)
    assert final.text.endswith("(killed by SIGKILL)")
    assert 0 == world.core.generations.schedulers[1].pending


def test_where_the_model_is_not_iterative_it_is_not_executed_again() -> None:
    world = _world()
    _stub(world, S)
    world.infer(F, request(1))

    _again(world, S)

    assert [] == _ids(world, S)
    assert 1 == world.core.traffic.malformed


# ----------------------------------------------------------------- circles


def _asks(own_id: int, generation: int) -> wire.Request:
    return request(own_id, generation, flags=wire.CALLER_BLOCKS)


@pytest.fixture
def pair() -> BrokerHarness:
    """Two models with one instance each: m with S, and other with S2."""
    world = _world()
    other = json.dumps({"name": "other"})
    world.core.add_generation(wire.AddGeneration(2, "other", 1, other))
    _stub(world, S)
    _stub(world, S2, generation=2)
    return world


def _is_refused(world: BrokerHarness, peer: int, own_id: int, circle: str) -> bool:
    [final] = world.finals(peer, own_id)
    return final.text.endswith(f"BLS calls would deadlock: {circle}")


def test_a_model_that_waits_for_itself_is_told(pair: BrokerHarness) -> None:
    pair.infer(F, request(1))

    pair.infer(S, _asks(1, 1))

    assert _is_refused(pair, S, 1, "m -> m")


def test_a_circle_of_two_is_told_at_its_end(pair: BrokerHarness) -> None:
    pair.infer(F, request(1))
    pair.infer(S, _asks(1, 2))

    pair.infer(S2, _asks(1, 1))

    assert _is_refused(pair, S2, 1, "m -> other -> m")
    assert [] == pair.finals(S, 1)


def test_who_does_not_wait_closes_no_circle(pair: BrokerHarness) -> None:
    pair.infer(F, request(1))

    pair.infer(S, request(1, 1))

    assert [] == pair.finals(S, 1)
    pair.finish_batch(S)
    assert [1] == _ids(pair, S)


def test_a_wait_that_is_over_closes_no_circle(pair: BrokerHarness) -> None:
    pair.infer(F, request(1))
    pair.infer(S, _asks(1, 2))
    pair.finish_batch(S2)
    pair.infer(F, request(2, 2))

    pair.infer(S2, _asks(1, 1))

    assert [] == pair.finals(S2, 1)


def test_an_instance_that_is_still_to_come_may_open_the_circle() -> None:
    world = _world({"name": "m", "instance_group": [{"count": 2}]})
    _stub(world, S)
    world.infer(F, request(1))

    world.infer(S, _asks(1, 1))
    assert [] == world.finals(S, 1)

    _stub(world, S2)
    assert [1] == _ids(world, S2)


def test_an_ensemble_within_the_circle_is_seen_through() -> None:
    world = _world()
    step = {"model_name": "m", "model_version": -1, "input_map": {"A": "A"}, "output_map": {}}
    ensemble = {
        "name": "whole",
        "input": [{"name": "A", "data_type": "TYPE_FP32", "dims": [1]}],
        "output": [{"name": "B", "data_type": "TYPE_FP32", "dims": [1]}],
        "ensemble_scheduling": {"step": [{**step, "output_map": {"B": "B"}}]},
    }
    world.core.add_generation(wire.AddGeneration(2, "whole", 1, json.dumps(ensemble)))
    _stub(world, S)
    world.infer(F, request(1))
    body = wire.RequestBody("", {}, [], [wire.Tensor("A", 11, [1], b"\0" * 4)])

    world.infer(S, _asks(1, 2), body=wire.encode_body(body))

    [final] = world.finals(S, 1)
    assert "BLS calls would deadlock: m -> whole -> m" in final.text
