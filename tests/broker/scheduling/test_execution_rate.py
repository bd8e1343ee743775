"""A limit on executions per second: who waits, who is refused, and what the others notice."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.world import S2, SECOND, BrokerHarness, F, S, request
from zmqtriton.broker.scheduling.execution_rate import SharedRate
from zmqtriton_floor import wire

LIMIT = "the model may begin 2 executions per second (max_executions_per_second)"


def _parameters(**values: str) -> dict[str, Any]:
    return {"parameters": {name: {"string_value": value} for name, value in values.items()}}


def _world(per_second: str = "2", **more: Any) -> BrokerHarness:
    limits = _parameters(max_executions_per_second=per_second, **more.pop("parameters", {}))
    return BrokerHarness.serving(S, config={**limits, **more})


def _begun(world: BrokerHarness, serial: int = S) -> int:
    return len(world.batched_requests.get(serial, []))


def _executions_within(world: BrokerHarness, span_ns: int, step_ns: int) -> int:
    """Return how many a model begins that answers at once."""
    count = 0
    for _ in range(span_ns // step_ns):
        while _begun(world):
            world.finish_batch(S)
            count += 1
        world.tick(step_ns)
    return count


@pytest.mark.row("L22")
def test_a_model_is_executed_at_its_pace() -> None:
    world = _world("2")

    world.infer(F, *(request(own_id) for own_id in range(1, 20)))

    assert 10 == _executions_within(world, 5 * SECOND, SECOND // 100)
    assert world.core.due_ns is not None
    assert world.now < world.core.due_ns <= world.now + SECOND // 2


@pytest.mark.row("L22")
def test_a_fast_pace_is_kept_by_a_slow_clock() -> None:
    world = _world("1000")

    world.infer(F, *(request(own_id) for own_id in range(1, 3000)))

    count = _executions_within(world, 2 * SECOND, SECOND // 20)
    assert 1900 <= count <= 2100


@pytest.mark.row("L22")
def test_idleness_saves_nothing_up() -> None:
    world = _world("2")
    world.tick(60 * SECOND)

    world.infer(F, *(request(own_id) for own_id in range(1, 9)))

    assert 1 == _begun(world)
    world.finish_batch(S)
    assert 0 == _begun(world)


@pytest.mark.row("L22")
def test_a_batch_is_one_execution() -> None:
    batching = {"max_batch_size": 4, "dynamic_batching": {}}
    world = _world("1", **batching)

    world.infer(F, *(request(own_id) for own_id in range(1, 9)))
    assert 4 == _begun(world)
    world.finish_batch(S)
    world.tick(SECOND)

    assert 4 == _begun(world)


@pytest.mark.row("L22")
def test_all_instances_share_the_pace() -> None:
    world = _world("2")
    world.add_stub(S2)

    world.infer(F, *(request(own_id) for own_id in range(1, 5)))
    assert 1 == _begun(world) + _begun(world, S2)
    world.tick(SECOND // 2)

    assert 2 == _begun(world) + _begun(world, S2)


@pytest.mark.row("L22")
def test_a_reload_does_not_begin_anew() -> None:
    world = _world("1")
    world.infer(F, request(1))
    world.finish_batch(S)
    limits = _parameters(max_executions_per_second="1")
    world.add_generation(2, config={"name": "m", **limits})
    world.add_stub(S2, generation=2)

    world.infer(F, request(2, 2))

    assert 0 == _begun(world, S2)
    world.tick(SECOND)
    assert 1 == _begun(world, S2)


@pytest.mark.row("L22")
def test_who_is_refused_meanwhile_hears_of_the_limit() -> None:
    queue = {"default_queue_policy": {"max_queue_size": 1}}
    world = _world("2", max_batch_size=1, dynamic_batching=queue)
    world.infer(F, request(1))
    world.finish_batch(S)

    world.infer(F, request(2), request(3))

    [refused] = world.finals(F, 3)
    assert refused.text.endswith(f"Exceeds maximum queue size: {LIMIT}")
    world.tick(SECOND // 2)
    assert [2] == world.executing(S)


@pytest.mark.row("L22")
def test_a_full_model_says_so_too() -> None:
    world = _world("2", parameters={"max_requests": "2"})
    world.infer(F, request(1))
    world.finish_batch(S)

    world.infer(F, request(2), request(3))
    world.infer(F, request(4))

    [refused] = world.finals(F, 4)
    assert f"Exceeds maximum queue size: {LIMIT}" == refused.text


@pytest.mark.row("L22")
@pytest.mark.parametrize("is_deadline", [True, False])
def test_who_waits_for_too_long_hears_of_the_limit(is_deadline: bool) -> None:
    queue = {"default_queue_policy": {"default_timeout_microseconds": 100_000}}
    batching = {} if is_deadline else {"max_batch_size": 1, "dynamic_batching": queue}
    world = _world("2", **batching)
    world.infer(F, request(1))
    world.finish_batch(S)

    row = request(2, deadline_ns=world.now + SECOND // 10) if is_deadline else request(2)
    world.infer(F, row)
    world.tick(SECOND // 10)

    overdue = "Deadline Exceeded: the request waited for 0.100 s in the queue of 'm'"
    why = overdue if is_deadline else "Request timeout expired"
    assert [f"{why}: {LIMIT}"] == [r.text for r in world.finals(F, 2)]


@pytest.mark.row("L22")
def test_a_model_that_is_only_busy_does_not_blame_the_limit() -> None:
    world = _world("2", parameters={"max_requests": "2"})
    world.infer(F, request(1))
    world.tick(5 * SECOND)

    world.infer(F, request(2), request(3))

    assert ["Exceeds maximum queue size"] == [r.text for r in world.finals(F, 3)]


@pytest.mark.row("L22")
def test_sequences_keep_the_pace() -> None:
    world = _world("2", sequence_batching={"max_sequence_idle_microseconds": 10_000_000})
    flags = wire.SEQUENCE_START

    world.infer(F, request(1, correlation=7, flags=flags), request(2, correlation=7))
    assert 1 == _begun(world)
    world.finish_batch(S)
    assert 0 == _begun(world)
    world.tick(SECOND // 2)

    assert 1 == _begun(world)


def test_the_executions_of_a_second_are_those_of_the_second_before() -> None:
    rate = SharedRate(100.0)
    for at_ns in (51 * SECOND // 10, 59 * SECOND // 10, 60 * SECOND // 10):
        rate.begin(at_ns)

    assert [2, 2, 1, 0, 0] == [
        rate.executions_of_last_second(int(at_s * SECOND)) for at_s in (6.0, 6.9, 7.0, 8.0, 20.0)
    ]
