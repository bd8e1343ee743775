"""Instances that come, work and retire."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.world import S2, BrokerHarness, F, Page, S, request
from zmqtriton.broker.requests.inflight import Batch, InflightRequest
from zmqtriton.broker.scheduling.generation import BrokerGeneration
from zmqtriton.broker.scheduling.instances import (
    EARLIER,
    ImpossibleTransition,
    Instance,
    Occupation,
    RateLimiterMember,
)
from zmqtriton.config.resources import ResourceNeed
from zmqtriton_floor import wire
from zmqtriton_floor.execution_progress import FENCE_NS
from zmqtriton_floor.wire import Executed

# --------------------------------------------------------------------------- instances
# One stub's states and batches, without a broker around it.


GENERATION = BrokerGeneration(1, "m", 1, "{}")


@pytest.fixture
def page() -> Page:
    return Page()


@pytest.fixture
def instance(page: Page) -> Instance:
    """One that has arrived."""
    instance = Instance(7, "m_0", 1, page)
    instance.arrive()
    return instance


def _request(own_id: int) -> InflightRequest:
    return InflightRequest(3, request(own_id), b"", GENERATION, 0)


def _batch(number: int, *requests: InflightRequest, at_ns: int = 10) -> Batch:
    return Batch(number, list(requests), at_ns)


def _member(blockers: list[Instance]) -> RateLimiterMember:
    return RateLimiterMember(ResourceNeed({}, 1), lambda need: blockers, 0)


# --------------------------------------------------------------------- its slots
def test_it_has_room_for_as_many_batches_as_it_executes_at_once(instance: Instance) -> None:
    instance.concurrency = 2
    assert (2, 2) == (instance.free_slots, instance.startable_batches)

    instance.dispatch(_batch(1))
    assert (1, 1) == (instance.batch_count, instance.free_slots)

    instance.dispatch(_batch(2))
    assert (2, 0) == (instance.batch_count, instance.free_slots)


def test_one_that_is_not_there_or_leaves_has_no_room(page: Page) -> None:
    instance = Instance(7, "m_0", 1, page)
    assert (0, False) == (instance.free_slots, instance.is_open)

    instance.arrive()
    assert (1, True) == (instance.free_slots, instance.is_open)

    instance.dismiss()
    assert (0, False) == (instance.free_slots, instance.is_open)


def test_of_those_that_share_resources_one_begins_in_its_turn_alone(instance: Instance) -> None:
    other = Instance(8, "m_1", 1)
    instance.membership = _member([other])

    assert 0 == instance.startable_batches
    instance.membership.is_its_turn = True

    assert (1, [other]) == (instance.startable_batches, instance.membership.blockers())


# --------------------------------------------------------------- earlier brokers
def test_before_its_hello_it_may_have_begun_anything_until_the_fence_holds(page: Page) -> None:
    instance = Instance(7, "m_0", 1, page)
    instance.await_hello(1000, epoch=2)
    page._keys = {(3, 1)}

    assert instance.may_have_begun((3, 2), 1000 + FENCE_NS - 1)
    assert not instance.may_have_begun((3, 2), 1000 + FENCE_NS)
    assert instance.may_have_begun((3, 1), 1000 + FENCE_NS)
    # the stub is told of it by the page alone
    assert (2, 1) == (page._fence, instance.batch_count)


def test_without_a_page_it_may_have_begun_anything_for_ever() -> None:
    instance = Instance(7, "m_0", 1)
    instance.await_hello(1000, epoch=2)

    assert instance.may_have_begun((3, 2), 10**18)


def test_the_batches_of_an_earlier_broker_end_one_after_the_other(instance: Instance) -> None:
    instance.concurrency, instance.earlier = 3, 2
    instance.dispatch(_batch(EARLIER))
    instance.dispatch(_batch(9))

    batch, _ = instance.finish_batch(5, 20)
    assert (EARLIER, 1, [EARLIER, 9]) == (batch.number, instance.earlier, list(instance.batches))

    batch, _ = instance.finish_batch(9, 30)
    assert (9, 1) == (batch.number, instance.earlier)

    batch, _ = instance.finish_batch(6, 40)
    assert (EARLIER, 0, {}) == (batch.number, instance.earlier, instance.batches)
    assert instance.is_idle
    with pytest.raises(KeyError):
        instance.finish_batch(8, 50)


# ------------------------------------------------------------------ its time
def test_the_time_of_executions_counts_from_the_first_batch_to_the_last(
    instance: Instance,
) -> None:
    assert (0, 0) == (instance.busy_ns(5), instance.take_busy_ns(5))
    instance.dispatch(_batch(1, at_ns=10))
    instance.dispatch(_batch(2, at_ns=14))

    assert (8, 10) == (instance.busy_ns(18), instance.take_busy_ns(20))
    assert 0 == instance.busy_ns(19), "the clock of a message may be behind"
    assert (5, 5) == (instance.finish_batch(1, 25)[1], instance.finish_batch(2, 30)[1])
    assert (0, 0) == (instance.busy_ns(40), instance.take_busy_ns(40))


def test_what_was_sent_ahead_begins_when_the_batch_before_it_ends(instance: Instance) -> None:
    first, second, third = _request(1), _request(2), _request(3)
    for number, one in enumerate((first, second, third), start=1):
        instance.dispatch(_batch(number, one))
    instance.finish_batch(1, 50)

    instance.begin_next(50)

    assert (10, 50, 10) == (first.dispatched_ns, second.dispatched_ns, third.dispatched_ns)
    instance.concurrency = 2
    instance.finish_batch(2, 60)
    instance.begin_next(60)
    assert 10 == third.dispatched_ns, "that one had begun at once"


@pytest.mark.parametrize(
    ("begun_ns", "counted_ns"), [(0, 10), (5, 10), (15, 15), (20, 20), (25, 20)]
)
def test_when_a_batch_was_begun_its_stub_says_within_reason(
    instance: Instance, begun_ns: int, counted_ns: int
) -> None:
    one = _request(1)
    instance.dispatch(_batch(1, one, at_ns=10))
    words = [Executed(8, 0, 0, 0, 12), Executed(1, 0, 0, 0, begun_ns)]

    instance.note_beginnings(words, 20)

    assert (counted_ns, words) == (one.dispatched_ns, instance.reported)


# ----------------------------------------------------------------- sent ahead
def test_who_waits_behind_a_batch_is_counted(instance: Instance) -> None:
    requests = [_request(number) for number in range(4)]
    instance.dispatch(_batch(1, requests[0]))
    instance.dispatch(_batch(2, *requests[1:3]))
    instance.dispatch(_batch(3, requests[3]))
    assert 3 == instance.waiting

    requests[2].is_cancelled = True
    assert 2 == instance.waiting

    instance.concurrency = 2
    assert 0 == instance.waiting


def test_more_is_sent_ahead_to_one_that_executes(instance: Instance) -> None:
    assert not instance.may_take_ahead(3), "it is idle"

    instance.dispatch(_batch(1))

    assert (True, False) == (instance.may_take_ahead(2), instance.may_take_ahead(1))


@pytest.mark.parametrize(
    ("number", "state"),
    [
        pytest.param(1, {"open_calls": {(7, 1): _request(1)}}, id="it asks somebody"),
        pytest.param(1, {"concurrency": 2}, id="it executes several at once"),
        pytest.param(1, {"membership": _member([])}, id="it shares a resource"),
        pytest.param(1, {"progress": None}, id="it has no page"),
        pytest.param(EARLIER, {}, id="it executes an earlier broker's batch"),
    ],
)
def test_to_another_nothing_is_sent_ahead(
    instance: Instance, number: int, state: dict[str, Any]
) -> None:
    instance.dispatch(_batch(number))
    for name, value in state.items():
        setattr(instance, name, value)

    assert not instance.may_take_ahead(2)


# -------------------------------------------------------------------- its end
def test_it_has_left_when_it_has_nothing_to_execute_or_to_answer(instance: Instance) -> None:
    one = _request(1)
    assert not instance.has_left, "nobody has dismissed it"
    instance.dispatch(_batch(1, one))
    instance.dismiss()
    assert not instance.has_left

    instance.finish_batch(1, 20)
    assert not instance.has_left, "it answers later"

    del instance.open_requests[one.key]
    assert instance.has_left


def test_with_it_dies_what_it_had_begun_and_what_had_run(instance: Instance, page: Page) -> None:
    begun, ahead, rerun, answered = (_request(number) for number in range(1, 5))
    rerun.has_run = True
    instance.dispatch(_batch(5, begun))
    instance.dispatch(_batch(6, ahead, rerun, answered))
    del instance.open_requests[answered.key]
    page.begin(5, [begun.key])

    lost, waiting = instance.die()

    assert ([begun, rerun], [ahead]) == (lost, waiting)
    assert ({}, {}, True) == (instance.open_requests, instance.batches, page.is_closed)
    assert Occupation.GONE is instance.state
    with pytest.raises(ImpossibleTransition, match="m_0 died while gone"):
        instance.die()


def test_without_a_page_all_of_it_dies() -> None:
    instance, one = Instance(7, "m_0", 1), _request(1)
    instance.arrive()
    instance.dispatch(_batch(5, one))

    assert ([one], []) == instance.die()


# -------------------------------------------------------------------------- retirement
# Single stubs of a generation that goes on, and who asks whom.


@pytest.fixture
def world() -> BrokerHarness:
    return BrokerHarness.serving()


def _drained(world: BrokerHarness) -> list[wire.Drained]:
    return [message for message in world.supervisor_messages if isinstance(message, wire.Drained)]


def test_a_stub_that_nobody_knows_has_nothing_left(world: BrokerHarness) -> None:
    world.retire(1, 99)

    assert [wire.Drained(1, 99)] == _drained(world)


def test_a_dismissal_holds_for_a_stub_that_says_hello_later(world: BrokerHarness) -> None:
    world.expect_stub(S)
    world.attach(S)

    world.retire(1, S)
    assert [] == _drained(world)
    world.say_hello(S)
    world.infer(F, request(1))

    assert [wire.Drained(1, S)] == _drained(world)
    assert S not in world.batched_requests


def test_other_instance_groups_change_nothing_else(world: BrokerHarness) -> None:
    world.infer(F, request(1))

    world.add_generation(config={"name": "m", "instance_group": [{"count": 3}]})
    world.add_stub(S)

    assert ([1], 3) == (world.executing(S), world.core.generations.by_number[1].expected)


def test_who_asks_whom_is_told_once(world: BrokerHarness) -> None:
    world.add_generation(2)
    world.add_stub(S)
    world.add_stub(S2, generation=2)

    world.infer(S, request(1, generation=2), request(2, generation=2))
    world.infer(F, request(1))

    called = [
        message for message in world.supervisor_messages if isinstance(message, wire.ModelCalled)
    ]
    assert [wire.ModelCalled(1, "m")] == called


# ------------------------------------------------------- what a later broker need not hear
def test_a_stub_that_has_left_and_one_that_has_died_are_settled(world: BrokerHarness) -> None:
    for serial in (S, S2):
        world.add_stub(serial)
    world.infer(F, request(1), request(2))

    world.core.retire(wire.Retire(1, S))
    world.finish_batch(S)
    world.kill_peer(S2)

    assert [wire.Settled(1, S), wire.Settled(1, S2)] == world.settled
