"""Which requests are executed together, and when."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.world import S2, BrokerHarness, F, Page, S, request
from zmqtriton_floor import wire
from zmqtriton_floor.settings.broker import BrokerSettings

DELAY_NS = 100_000


def batching(
    max_batch_size: int = 8, *, held: int = 0, page: Page | None = None, **settings: Any
) -> BrokerHarness:
    """A model that batches, with one idle stub."""
    config = {"name": "m", "max_batch_size": max_batch_size, "dynamic_batching": settings}
    world = BrokerHarness.serving(config=config, settings=BrokerSettings(held_requests=held))
    world.add_stub(S, page=page)
    return world


def quick(**settings: Any) -> tuple[BrokerHarness, Page]:
    """Likewise, with a stub that is known to be quick and executes the requests 1 and 2."""
    page = Page()
    world = batching(page=page, **settings)
    world.infer(F, request(0))
    world.tick(DELAY_NS)
    world.finish_batch(S)
    world.infer(F, request(1), request(2))
    world.tick(DELAY_NS)
    assert [1, 2] == at_stub(world)
    page.last_begun_batch = world.batched_requests[S][0].batch
    return world, page


def at_stub(world: BrokerHarness) -> list[int]:
    """Return the requests that the stub has, in their order."""
    return world.executing(S)


def sizes(world: BrokerHarness, serial: int = S) -> list[int]:
    """Return how many requests each execute() was given until nothing was left."""
    counts = []
    while world.batched_requests.get(serial):
        counts.append(len(world.finish_batch(serial)))
    return counts


@pytest.mark.row("E60")
def test_without_a_delay_an_idle_stub_gets_at_once_what_is_there() -> None:
    world = batching()

    world.infer(F, request(1), request(2))
    world.infer(F, *(request(i) for i in range(3, 10)))

    assert [2, 7] == sizes(world)
    assert world.core.due_ns is None


@pytest.mark.parametrize("delay_us", [0, 100])
def test_requests_are_held_back_until_enough_of_them_wait(delay_us: int) -> None:
    world = batching(held=3, max_queue_delay_microseconds=delay_us)

    world.infer(F, request(1))
    world.infer(F, request(2))
    world.tick(10 * DELAY_NS)
    assert not world.batched_requests
    assert world.core.due_ns is None
    world.infer(F, request(3))
    world.tick(10 * DELAY_NS)

    assert [3] == sizes(world)
    world.infer(F, request(4))
    world.tick(10 * DELAY_NS)
    assert [1] == sizes(world)


def test_a_model_without_a_batcher_holds_nothing_back() -> None:
    world = BrokerHarness.serving(
        S, config={"name": "m", "max_batch_size": 8}, settings=BrokerSettings(held_requests=3)
    )

    world.infer(F, request(1))

    assert [1] == sizes(world)


@pytest.mark.row("E60")
def test_batch_sizes_of_requests_are_added_and_none_is_split() -> None:
    world = batching()

    world.infer(F, *(request(i, batch_size=3) for i in range(1, 6)))

    assert [2, 2, 1] == sizes(world)


@pytest.fixture
def world() -> BrokerHarness:
    return batching(max_queue_delay_microseconds=100)


@pytest.mark.row("E60")
def test_a_delay_collects_until_it_has_passed(world: BrokerHarness) -> None:
    world.infer(F, request(1))
    world.tick(DELAY_NS - 1)
    world.infer(F, request(2))
    assert not world.batched_requests
    world.tick(1)

    assert [2] == sizes(world)
    assert world.core.due_ns is None


def test_the_largest_batch_does_not_wait(world: BrokerHarness) -> None:
    world.infer(F, request(1, batch_size=5))
    assert not world.batched_requests
    world.infer(F, request(2, batch_size=3))

    assert [2] == sizes(world)


@pytest.mark.row("E60")
def test_what_can_grow_no_further_does_not_wait(world: BrokerHarness) -> None:
    world.infer(F, request(1, batch_size=5))
    world.infer(F, request(2, batch_size=5))

    assert [1] == [len(world.batched_requests[S])]
    world.finish_batch(S)
    assert not world.batched_requests[S], "the second one may still grow"
    world.tick(DELAY_NS)
    assert [1] == sizes(world)


def test_a_preferred_size_goes_at_once() -> None:
    world = batching(preferred_batch_size=[4], max_queue_delay_microseconds=100)

    world.infer(F, *(request(i) for i in range(1, 4)))
    assert not world.batched_requests
    world.infer(F, request(4), request(5))

    assert 4 == len(world.finish_batch(S))
    assert not world.batched_requests[S], "the fifth waits for others"
    world.tick(DELAY_NS)
    assert [1] == sizes(world)


@pytest.mark.row("E60")
def test_the_largest_preferred_size_that_is_there_is_taken() -> None:
    world = batching(preferred_batch_size=[2, 4])

    world.infer(F, *(request(i) for i in range(1, 8)))

    assert [4, 2, 1] == sizes(world)


@pytest.mark.parametrize(("first", "second"), [(3, 4), (4, 3)])
def test_a_request_beyond_all_preferred_sizes_waits_for_a_batch_of_its_own(
    first: int, second: int
) -> None:
    world = batching(preferred_batch_size=[2, 6], max_queue_delay_microseconds=100)

    world.infer(F, request(1, batch_size=first))
    assert not world.batched_requests
    world.tick(DELAY_NS // 2)
    world.infer(F, request(2, batch_size=second))

    assert 1 == len(world.finish_batch(S)), "the first grows no further"
    world.tick(DELAY_NS - 1)
    assert not world.batched_requests[S], "the second has its own delay"
    world.tick(1)
    assert [1] == sizes(world)


def test_without_a_delay_what_waits_goes_together_beyond_all_preferred_sizes() -> None:
    world = batching(preferred_batch_size=[2, 6])

    world.infer(F, request(1))
    world.infer(F, request(2, batch_size=4), request(3, batch_size=3))

    assert [1, 2] == sizes(world)


def test_what_has_waited_long_enough_goes_together_beyond_all_preferred_sizes() -> None:
    world = batching(preferred_batch_size=[2, 6], max_queue_delay_microseconds=100)
    world.infer(F, request(1), request(2))
    world.infer(F, request(3, batch_size=3), request(4, batch_size=4))
    world.now += DELAY_NS

    world.finish_batch(S)

    assert 2 == len(world.batched_requests[S])


def test_once_the_delay_has_passed_the_preferred_size_counts_no_more() -> None:
    world = batching(preferred_batch_size=[2], max_queue_delay_microseconds=100)
    world.infer(F, request(1), request(2))
    world.infer(F, *(request(i) for i in range(3, 6)))
    world.now += DELAY_NS

    world.finish_batch(S)

    assert 3 == len(world.batched_requests[S])


@pytest.mark.row("E61")
def test_only_requests_of_one_shape_share_a_batch_and_order_is_kept() -> None:
    world = batching()
    world.infer(F, request(0))

    world.infer(F, *(request(i, batch_key=key) for i, key in enumerate([7, 7, 8, 7], start=1)))
    world.finish_batch(S)

    assert [2, 1, 1] == sizes(world)


def test_a_request_of_another_shape_closes_the_batch_before_it(world: BrokerHarness) -> None:
    world.infer(F, request(1, batch_key=7), request(2, batch_key=8))

    assert [1] == world.executing(S)


@pytest.mark.parametrize("leaves", ["cancelled", "expired"])
def test_who_leaves_the_queue_is_answered_at_once_and_not_in_the_batch(
    world: BrokerHarness, leaves: str
) -> None:
    world.infer(F, request(1, deadline_ns=world.now + 50_000 if leaves == "expired" else 0))
    world.infer(F, request(2))

    if leaves == "cancelled":
        world.cancel(F, 1)
    world.tick(50_000)

    assert 1 == len(world.finals(F, 1))
    assert not world.batched_requests
    world.tick(50_000)
    assert [2] == world.executing(S)


@pytest.mark.row("E62")
def test_without_dynamic_batching_each_request_is_executed_alone() -> None:
    world = BrokerHarness.serving(S, config={"max_batch_size": 8})

    world.infer(F, *(request(i) for i in range(1, 4)))

    assert [1, 1, 1] == sizes(world)


@pytest.mark.row("E68")
def test_each_idle_stub_takes_what_is_there() -> None:
    world = batching(max_batch_size=4)
    world.add_stub(S2)

    world.infer(F, *(request(i) for i in range(1, 11)))

    assert {S: 4, S2: 4} == {serial: len(works) for serial, works in world.batched_requests.items()}


def test_while_every_stub_is_busy_no_timer_runs_for_the_queue(world: BrokerHarness) -> None:
    world.infer(F, *(request(i) for i in range(8)))
    world.infer(F, request(8))

    world.tick(10 * DELAY_NS)

    assert world.core.due_ns is None
    world.finish_batch(S)
    assert [8] == world.executing(S)


def test_the_next_batch_is_there_when_a_quick_stub_is_done() -> None:
    world, _ = quick(max_queue_delay_microseconds=100)

    world.infer(F, request(3))
    world.tick(DELAY_NS // 2)
    world.infer(F, request(4))
    assert [1, 2] == at_stub(world), "the oldest may wait for others"
    world.tick(DELAY_NS // 2 - 1)
    world.infer(F, request(5))
    assert [1, 2] == at_stub(world)
    world.tick(1)
    assert [1, 2, 3, 4, 5] == at_stub(world)

    world.infer(F, *(request(i) for i in range(6, 11)))
    world.tick(DELAY_NS)
    assert [1, 2, 3, 4, 5] == at_stub(world), "no more than one batch waits there"
    assert [2, 3, 5] == sizes(world)


def test_a_batch_that_reaches_its_preferred_size_is_sent_ahead_without_a_delay() -> None:
    world, _ = quick(preferred_batch_size=[2], max_queue_delay_microseconds=100)

    world.infer(F, request(3))
    assert [1, 2] == at_stub(world)
    world.infer(F, request(4), request(5))

    assert [1, 2, 3, 4] == at_stub(world)


@pytest.mark.parametrize(
    "rules",
    [
        {"priority_levels": 2, "default_priority_level": 2},
        {"default_queue_policy": {"default_timeout_microseconds": 10_000}},
        {"default_queue_policy": {"max_queue_size": 100}},
    ],
)
def test_what_its_queue_may_refuse_or_overtake_is_not_sent_ahead(rules: dict[str, Any]) -> None:
    world, _ = quick(**rules)

    world.infer(F, request(3), request(4))
    world.tick(DELAY_NS)

    assert [1, 2] == at_stub(world)
    world.finish_batch(S)
    assert [3, 4] == at_stub(world)


def test_a_batch_that_a_dead_stub_had_not_begun_is_queued_again_in_order() -> None:
    world, _ = quick()
    world.infer(F, request(3), request(4))
    world.infer(F, request(5))
    assert [1, 2, 3, 4] == at_stub(world)

    world.kill_peer(S)
    assert [1, 2] == [own_id for own_id in range(1, 6) if world.finals(F, own_id)]
    world.add_stub(S)

    assert [3, 4, 5] == at_stub(world)


def test_a_request_cancelled_in_a_batch_that_was_sent_ahead_is_told_to_the_stub() -> None:
    world, _ = quick()
    world.infer(F, request(3), request(4))

    world.cancel(F, 3)

    assert [(S, wire.RequestKey(F, 3))] == world.cancelled_executions


def test_the_timer_of_a_batch_that_went_without_it_wakes_nobody() -> None:
    world = batching(preferred_batch_size=[2], max_queue_delay_microseconds=100)
    world.infer(F, request(1))
    assert world.now + DELAY_NS == world.core.due_ns

    world.infer(F, request(2))

    assert world.core.due_ns is None
    world.tick(DELAY_NS // 2)
    world.finish_batch(S)
    world.infer(F, request(3))
    assert world.now + DELAY_NS == world.core.due_ns
    world.tick(DELAY_NS)
    assert [3] == at_stub(world)


def test_the_timer_of_a_batch_whose_stub_became_busy_wakes_nobody() -> None:
    world = batching(max_queue_delay_microseconds=100, preferred_batch_size=[2])
    world.infer(F, request(1))

    world.infer(F, request(2), request(3))

    assert ([1, 2], None) == (at_stub(world), world.core.due_ns)


def test_a_model_without_a_batch_dimension_gets_one_request_at_a_time() -> None:
    world = batching(max_batch_size=0)

    world.infer(F, request(1, batch_size=0), request(2, batch_size=0))

    assert [1, 1] == sizes(world)


def test_statistics_count_each_batch_by_its_size() -> None:
    world = batching()
    world.infer(F, request(1, batch_size=2), request(2, batch_size=3))
    world.finish_batch(S)

    counters = world.core.generations.by_number[1].statistics

    assert [5] == list(counters.batches)
    assert (5, 1, 2) == (
        counters.inference_count,
        counters.execution_count,
        counters.success.count,
    )


# -------------------------------------------------------------------- why batches are small


def _body(**shapes: list[int]) -> bytes:
    tensors = [wire.Tensor(name, 11, shape, b"") for name, shape in shapes.items()]
    return wire.encode_body(wire.RequestBody("", {}, [], tensors))


def test_batches_that_end_at_another_shape_are_counted_with_the_input() -> None:
    world = batching()
    bodies = [_body(A=[1, 2], B=[1, 3]), _body(A=[1, 2], B=[1, 4]), _body(A=[1, 2])]
    world.infer(F, request(9))
    rows = [request(own_id, batch_key=own_id) for own_id in range(3)]
    world.core.infer(F, rows, bodies, world.now)
    world.drain_outbox()

    assert [1, 1, 1, 1] == sizes(world)

    assert {
        "target": 8,
        "delay_us": 0,
        "batches": 4,
        "elements": 4,
        "complete": 2,
        "parted": 2,
        "differences": {"B": "presence"},
    } == world.figures()["batching"]


def test_a_batch_that_ends_for_its_size_is_not_parted() -> None:
    world = batching(2)

    world.infer(F, *(request(own_id) for own_id in range(5)))
    assert [2, 2, 1] == sizes(world)

    figures = world.figures()["batching"]
    assert (3, 5, 0, 1) == tuple(
        figures[name] for name in ("batches", "elements", "parted", "complete")
    )
