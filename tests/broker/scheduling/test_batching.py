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


@pytest.mark.row("E60")
def test_what_can_grow_no_further_does_not_wait(world: BrokerHarness) -> None:
    world.infer(F, request(1, batch_size=5))
    world.infer(F, request(2, batch_size=5))

    assert [1] == [len(world.batched_requests[S])]
    world.finish_batch(S)
    assert not world.batched_requests[S], "the second one may still grow"
    world.tick(DELAY_NS)
    assert [1] == sizes(world)


@pytest.mark.row("E60")
def test_the_largest_preferred_size_that_is_there_is_taken() -> None:
    world = batching(preferred_batch_size=[2, 4])

    world.infer(F, *(request(i) for i in range(1, 8)))

    assert [4, 2, 1] == sizes(world)


def test_what_has_waited_long_enough_goes_together_beyond_all_preferred_sizes() -> None:
    world = batching(preferred_batch_size=[2, 6], max_queue_delay_microseconds=100)
    world.infer(F, request(1), request(2))
    world.infer(F, request(3, batch_size=3), request(4, batch_size=4))
    world.now += DELAY_NS

    world.finish_batch(S)

    assert 2 == len(world.batched_requests[S])


@pytest.mark.row("E61")
def test_only_requests_of_one_shape_share_a_batch_and_order_is_kept() -> None:
    world = batching()
    world.infer(F, request(0))

    world.infer(F, *(request(i, batch_key=key) for i, key in enumerate([7, 7, 8, 7], start=1)))
    world.finish_batch(S)

    assert [2, 1, 1] == sizes(world)


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
    bodies = [_body(A=[1, 2], B=[1, 3]), _body(A=[1, 5], B=[1, 3]), _body(A=[1, 2])]
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
        "differences": {"A": "shape", "B": "presence"},
    } == world.figures()["batching"]
