"""Resources of the rate limiter, and the rate of executions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.broker.world import S2, SECOND, BrokerHarness, F, Page, S, request
from zmqtriton.broker.scheduling.execution_rate import SharedRate
from zmqtriton.config.resources import NO_DEVICE, ResourceNeed
from zmqtriton_floor import wire
from zmqtriton_floor.settings.broker import BrokerSettings, RateLimitResource, RateLimits

# ------------------------------------------------------------------------ rate limiter
# The rate limiter: who may execute beside whom, and whose turn it is.


A, B, C = 11, 12, 13


def demand(priority: int = 1, **counts: int) -> str:
    return ResourceNeed({(name, 0): n for name, n in counts.items()}, priority).to_json()


def world_of(*demands: str, config: dict[str, Any] | None = None, **supply: int) -> BrokerHarness:
    """Return a model for each demand, with one instance: 1 with A, 2 with B and so on."""
    world = BrokerHarness()
    resources = tuple(RateLimitResource(name, n, NO_DEVICE) for name, n in supply.items())
    world.core.configure(1, BrokerSettings(rate=RateLimits(True, resources)))
    world.add_frontend(F)
    for number, needs in enumerate(demands, 1):
        world.add_generation(number, config={"name": f"m{number}", **(config or {})})
        world.add_stub(A + number - 1, number, Page(), demand=needs)
    return world


def executing(world: BrokerHarness) -> set[int]:
    return {serial for serial, works in world.batched_requests.items() if works}


def ask(world: BrokerHarness, generation: int, *ids: int, **fields: Any) -> None:
    world.infer(F, *(request(own_id, generation, **fields) for own_id in ids))


def test_in_the_way_is_who_executes_with_what_is_lacking() -> None:
    world = world_of(demand(R=1), demand(R=1), demand(Q=1), R=1, Q=1)
    ask(world, 1, 1)
    ask(world, 3, 2)
    assert {A, C} == executing(world)

    def blockers(**counts: int) -> list[int]:
        needs = ResourceNeed({(name, 0): n for name, n in counts.items()}, 1)
        return [instance.serial for instance in world.core.rate_limiter.blockers(needs)]

    assert ([A], [C], []) == (blockers(R=1), blockers(Q=1), blockers())


@pytest.mark.row("E38")
def test_two_that_need_the_same_never_execute_together() -> None:
    world = world_of(demand(R=1), demand(R=1))

    ask(world, 1, 1, 2)
    ask(world, 2, 3)

    assert {A} == executing(world)
    world.finish_batch(A)
    assert {B} == executing(world)
    world.finish_batch(B)
    assert {A} == executing(world)


@pytest.mark.row("E38")
def test_priorities_weigh_executions() -> None:
    world = world_of(demand(1, R=1), demand(2, R=1), demand(4, R=1))
    for generation in (1, 2, 3):
        ask(world, generation, *range(generation * 1000, generation * 1000 + 200))

    turns: Counter[int] = Counter()
    for _ in range(140):
        [serial] = executing(world)
        turns[serial] += 1
        world.finish_batch(serial)

    assert {A: 80, B: 40, C: 20} == turns


def test_the_dead_and_the_removed_give_back() -> None:
    world = world_of(demand(R=1), demand(R=1), demand(R=1))
    for generation in (1, 2, 3):
        ask(world, generation, generation)

    world.kill_peer(A)
    assert {B} == executing(world)
    world.remove(2)
    world.batched_requests.pop(B)

    assert {C} == executing(world)


def test_a_batch_that_waits_for_company_keeps_nothing_from_others() -> None:
    batching = {"preferred_batch_size": [4], "max_queue_delay_microseconds": 1000}
    config = {"max_batch_size": 4, "dynamic_batching": batching}
    world = world_of(demand(R=1), demand(R=1), config=config)

    ask(world, 1, 1)
    ask(world, 2, 11, 12, 13, 14)
    assert {B} == executing(world)
    world.tick(2_000_000)
    world.finish_batch(B)

    assert {A} == executing(world)


def test_sequences_take_their_turns() -> None:
    config = {"max_batch_size": 1, "sequence_batching": {"direct": {}}}
    world = world_of(demand(R=1), demand(R=1), config=config)
    body = wire.encode_body(wire.RequestBody("", {}, [], []))
    start = wire.SEQUENCE_START

    for generation in (1, 2):
        row = request(generation, generation, flags=start, correlation=generation)
        world.infer(F, row, body=body)

    assert {A} == executing(world)
    world.finish_batch(A)
    assert {B} == executing(world)


def test_who_holds_what_is_told() -> None:
    world = world_of(demand(R=1), demand(R=1), R=1)
    ask(world, 1, 1)
    ask(world, 2, 2)

    assert [
        {
            "resource": "R",
            "device": 0,
            "count": 1,
            "in_use": 1,
            "holders": {"m_11": 1},
            "waiting": ["m_12"],
        }
    ] == world.statistics("")["zmqtriton"]["resources"]


def test_a_circle_through_a_resource_is_refused() -> None:
    world = world_of(demand(R=1), demand(R=1))
    ask(world, 1, 1)

    world.infer(A, request(7, 0, model="m2", flags=wire.CALLER_BLOCKS))

    [reply] = world.finals(A, 7)
    assert "BLS calls would deadlock: m2 -> m2" in reply.text
    world.finish_batch(A)
    ask(world, 2, 2)
    assert {B} == executing(world)


def test_what_a_holder_asks_for_is_not_kept_from_it() -> None:
    world = world_of(demand(R=1), demand(R=1), demand(R=2), R=2)
    ask(world, 1, 1)
    ask(world, 3, 3)  # waits for both, and keeps the one that is free

    ask(world, 2, 2)
    assert {A} == executing(world)
    world.infer(A, request(7, 0, model="m2", flags=wire.CALLER_BLOCKS))

    assert {A, B} == executing(world)


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_who_shares_and_may_not_begin_after_its_delay_waits_for_no_time_that_has_passed(
    is_cancelled: bool,
) -> None:
    oldest = {"preferred_batch_size": [2], "max_queue_delay_microseconds": 1000}
    idle = {"max_sequence_idle_microseconds": "1000000"}
    config = {"max_batch_size": 2, "sequence_batching": {"oldest": oldest, **idle}}
    world = world_of(demand(R=1), config=config)
    world.add_generation(2, config={"name": "other"})
    world.add_stub(B, 2, Page(), demand=demand(R=1))
    ask(world, 1, 1, correlation=7, flags=wire.SEQUENCE_START)

    if is_cancelled:
        world.cancel(F, 1)
    else:
        ask(world, 2, 2)
    world.tick(2_000_000)

    due_ns = world.core.due_ns
    assert due_ns is None or due_ns > world.now
    ask(world, 1, 3, correlation=8, flags=wire.SEQUENCE_START)
    if not is_cancelled:
        world.finish_batch(B)
    world.tick(2_000_000)
    assert {A} == executing(world)


def test_a_sequence_whose_pace_lets_it_begin_waits_for_a_resource_and_no_time_that_has_passed() -> (
    None
):
    world = world_of(
        demand(R=1),
        config={"sequence_batching": {}, **_parameters(max_executions_per_second="2")},
        R=1,
    )
    world.add_generation(2, config={"name": "other"})
    world.add_stub(B, 2, Page(), demand=demand(R=1))
    ask(world, 1, 1, correlation=7, flags=wire.SEQUENCE_START)
    world.finish_batch(A)
    ask(world, 1, 2, correlation=7)
    ask(world, 2, 3)

    world.tick(SECOND * 3 // 4)

    assert {B} == executing(world)
    assert world.core.due_ns is None or world.core.due_ns > world.now
    world.finish_batch(B)
    assert {A} == executing(world)


# ---------------------------------------------------------------------- execution rate
# A limit on executions per second: who waits, who is refused, and what the others notice.


LIMIT = "the model may begin 2 executions per second (max_executions_per_second)"


def _parameters(**values: str) -> dict[str, Any]:
    return {"parameters": {name: {"string_value": value} for name, value in values.items()}}


def _world(per_second: str = "2", **more: Any) -> BrokerHarness:
    limits = _parameters(max_executions_per_second=per_second, **more.pop("parameters", {}))
    return BrokerHarness.serving(S, config={**limits, **more})


def _after_one(per_second: str, **more: Any) -> BrokerHarness:
    """The model has executed its first request."""
    world = _world(per_second, **more)
    world.infer(F, request(1))
    world.finish_batch(S)
    return world


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


@pytest.mark.slow
@pytest.mark.row("L22")
def test_a_fast_pace_is_kept_by_a_slow_clock() -> None:
    world = _world("1000")

    world.infer(F, *(request(own_id) for own_id in range(1, 3000)))

    assert 1900 <= _executions_within(world, 2 * SECOND, SECOND // 20) <= 2100


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
    world = _world("1", max_batch_size=4, dynamic_batching={})

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
    world = _after_one("1")
    world.add_generation(2, config={"name": "m", **_parameters(max_executions_per_second="1")})
    world.add_stub(S2, generation=2)

    world.infer(F, request(2, 2))

    assert 0 == _begun(world, S2)
    world.tick(SECOND)
    assert 1 == _begun(world, S2)


@pytest.mark.row("L22")
def test_who_is_refused_meanwhile_hears_of_the_limit() -> None:
    queue = {"default_queue_policy": {"max_queue_size": 1}}
    world = _after_one("2", max_batch_size=1, dynamic_batching=queue)

    world.infer(F, request(2), request(3))

    [refused] = world.finals(F, 3)
    assert refused.text.endswith(f"Exceeds maximum queue size: {LIMIT}")
    world.tick(SECOND // 2)
    assert [2] == world.executing(S)


@pytest.mark.row("L22")
def test_a_full_model_says_so_too() -> None:
    world = _after_one("2", parameters={"max_requests": "2"})

    world.infer(F, request(2), request(3))
    world.infer(F, request(4))

    [refused] = world.finals(F, 4)
    assert f"Exceeds maximum queue size: {LIMIT}" == refused.text


@pytest.mark.row("L22")
@pytest.mark.parametrize("is_deadline", [True, False])
def test_who_waits_for_too_long_hears_of_the_limit(is_deadline: bool) -> None:
    queue = {"default_queue_policy": {"default_timeout_microseconds": 100_000}}
    batching = {} if is_deadline else {"max_batch_size": 1, "dynamic_batching": queue}
    world = _after_one("2", **batching)

    world.infer(F, request(2, deadline_ns=world.now + SECOND // 10) if is_deadline else request(2))
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
