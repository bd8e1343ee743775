"""Executions: those written down for a later broker, several at once or again, overdue ones."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.world import SECOND, BrokerHarness, F, S, outcome, request
from zmqtriton.broker.requests.begun_requests import BegunRequests
from zmqtriton_floor import wire

# --------------------------------------------------------------------------------- execution modes
# Instances that take several batches, and requests that are executed again.


def _iterative(*stubs: int) -> BrokerHarness:
    config = {"sequence_batching": {"iterative_sequence": True}}
    return BrokerHarness.serving(*stubs, config=config, has_pages=True)


def _wide(*stubs: int, **hello: Any) -> BrokerHarness:
    config = {"parameters": {"MAX_INFLIGHT": {"string_value": "3"}}}
    return BrokerHarness.serving(*stubs, config=config, has_pages=True, concurrency=3, **hello)


# ------------------------------------------------------------------- slots


def test_batches_may_end_in_any_order() -> None:
    world = _wide(S)
    world.infer(F, *[request(i) for i in (1, 2, 3)])
    last = world.batched_requests[S].pop()

    world.send_results(S, outcome(last.id), executed=[wire.Executed(last.batch, 1, 1, 1)])
    world.finish_batch(S)
    world.finish_batch(S)

    assert [1, 1, 1] == [len(world.finals(F, i)) for i in (1, 2, 3)]
    assert 0 == world.core.traffic.malformed


def test_what_an_instance_was_in_when_the_broker_died_takes_its_slots() -> None:
    world = _wide(S, is_executing=2)
    world.infer(F, request(1), request(2), request(3))
    assert [1] == world.executing(S)

    for _ in range(2):
        world.send_results(S, executed=[wire.Executed(77, 1, 1, 1)])

    assert ([1, 2, 3], 0) == (world.executing(S), world.core.traffic.malformed)


# ------------------------------------------------------------ executed again


def _again(world: BrokerHarness, serial: int) -> None:
    """The stub wants what it executes back."""
    work = world.batched_requests[serial].pop(0)
    executed = [wire.Executed(work.batch, 1, 1, 1)]
    world.send_results(serial, executed=executed, again=[wire.RequestKey(work.peer, work.id)])


def test_a_cancelled_request_is_not_executed_again_and_its_stub_is_told() -> None:
    world = _iterative(S)
    world.infer(F, request(1))
    world.cancel(F, 1)

    _again(world, S)

    assert ([], 1) == (world.executing(S), len(world.finals(F, 1)))
    assert [(S, wire.RequestKey(F, 1))] * 2 == world.cancelled_executions
    assert 0 == world.core.generations.schedulers[1].pending


def test_where_the_model_is_not_iterative_it_is_not_executed_again() -> None:
    world = BrokerHarness.serving(S, has_pages=True)
    world.infer(F, request(1))

    _again(world, S)

    assert ([], 1) == (world.executing(S), world.core.traffic.malformed)


# ---------------------------------------------------------------------------------- begun requests
# The requests that a broker writes down for the next one.


@pytest.fixture
def memory() -> bytearray:
    """Room for two requests."""
    return bytearray(72)


def begin(memory: bytearray) -> BegunRequests:
    begun = BegunRequests()
    begun.adopt(memory)
    return begun


def test_the_next_broker_reads_what_was_written_and_not_removed(memory: bytearray) -> None:
    first = begin(memory)
    place = first.add((1, 7))
    first.add((2, 7))
    first.remove(place)

    following = begin(memory)

    assert [False, True] == [following.had_begun((peer, 7)) for peer in (1, 2)]
    assert not first.had_begun((2, 7)), "its own requests are no earlier broker's"


def test_a_broker_after_the_next_one_reads_the_same(memory: bytearray) -> None:
    begin(memory).add((1, 7))
    begin(memory).add((1, 8))

    third = begin(memory)

    assert all(third.had_begun((1, own_id)) for own_id in (7, 8))


def test_places_are_used_again(memory: bytearray) -> None:
    begun = begin(memory)
    for own_id in range(1, 100):
        begun.remove(begun.add((1, own_id)))
    begun.add((1, 100))

    assert [own_id for own_id in range(102) if begin(memory).had_begun((1, own_id))] == [100]


def test_without_room_any_request_may_have_begun_until_those_have_their_answers(
    memory: bytearray,
) -> None:
    begun = begin(memory)
    places = [begun.add((1, own_id)) for own_id in range(1, 5)]

    assert 2 == memory[0], "where brokers of other releases look for their number"
    for place in places[2:]:
        assert begin(memory).had_begun((9, 9))
        begun.remove(place)
    assert not begin(memory).had_begun((9, 9))


def test_what_earlier_brokers_had_begun_is_forgotten_when_nobody_repeats_it(
    memory: bytearray,
) -> None:
    first = begin(memory)
    for own_id in range(1, 4):
        first.add((1, own_id))
    following = begin(memory)

    following.forget_earlier()

    assert not following.had_begun((1, 1))
    assert memory == bytearray(72)


def test_a_run_of_which_one_step_was_sent_has_begun_if_that_has(memory: bytearray) -> None:
    first = begin(memory)
    first.add((1, 7), 70)
    first.add((1, 8), 80)
    following = begin(memory)
    assert [70, 80] == [following.step_in_doubt((1, own_id)) for own_id in (7, 8)]
    assert not following.had_begun((1, 7))

    following.confirm_steps([70, 90])

    for broker in (following, begin(memory)):
        assert broker.had_begun((1, 7))
        assert not broker.had_begun((1, 8))
    following.forget((1, 8))
    assert 0 == begin(memory).step_in_doubt((1, 8))


def test_any_step_may_have_begun_if_nobody_can_say(memory: bytearray) -> None:
    begin(memory).add((1, 7), 70)
    following = begin(memory)

    following.confirm_steps(None)

    assert following.had_begun((1, 7))


def test_a_run_that_was_confirmed_is_not_in_doubt(memory: bytearray) -> None:
    first = begin(memory)

    first.confirm(first.add((1, 7), 70))

    assert begin(memory).had_begun((1, 7))
    assert 0 == begin(memory).step_in_doubt((1, 7))


# ------------------------------------------------------------------------------ overdue executions
# Requests whose deadline passes while they are executed count as failed, once and at that time.


@pytest.fixture
def world() -> BrokerHarness:
    return BrokerHarness.serving()


def entry(world: BrokerHarness) -> dict[str, Any]:
    [row] = world.statistics()["model_stats"]
    return dict(row)


def ends(world: BrokerHarness) -> tuple[int, int, dict[str, int]]:
    """Return how many requests have succeeded, how many have failed, and those by reason."""
    row = entry(world)
    counts, failures = row["inference_stats"], row["zmqtriton"]["failures"]
    reasons = {reason: count for reason, count in failures.items() if count}
    return counts["success"]["count"], counts["fail"]["count"], reasons


@pytest.mark.row("L18")
def test_a_request_has_failed_at_its_deadline_however_its_execution_ends(
    world: BrokerHarness,
) -> None:
    world.add_stub(S)
    world.infer(F, request(1, deadline_ns=world.now + SECOND))
    world.tick(2 * SECOND)
    assert (0, 1, {"OTHER": 1}) == ends(world)

    world.finish_batch(S)

    assert (0, 1, {"OTHER": 1}) == ends(world)
    after = entry(world)
    assert (0, 1) == (after["inference_count"], after["execution_count"])
    assert "was executing the request" in after["zmqtriton"]["last_error"]["text"]


def test_a_client_that_leaves_at_its_deadline_has_not_been_served(world: BrokerHarness) -> None:
    world.add_stub(S)
    world.infer(F, request(1, deadline_ns=world.now + SECOND))

    world.tick(SECOND - 1)
    world.cancel(F, 1)  # as clients of gRPC do
    world.tick(SECOND)
    world.finish_batch(S)

    assert (0, 1, {"OTHER": 1}) == ends(world)
