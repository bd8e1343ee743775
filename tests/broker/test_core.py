"""The broker's reactions to one event after the other."""

from __future__ import annotations

import pytest

from tests.broker.world import S2, TOKEN, BrokerHarness, F, Page, S, outcome, request
from zmqtriton.broker.requests.limits import MAX_UNANSWERED, MAX_UNANSWERED_BYTES
from zmqtriton_floor import wire
from zmqtriton_floor.errors import (
    Cancelled,
    DeadlineExceeded,
    InternalError,
    InvalidArgument,
    ProtocolError,
    Unavailable,
)


@pytest.fixture
def world() -> BrokerHarness:
    return BrokerHarness.serving()


@pytest.fixture
def served() -> BrokerHarness:
    """One with a stub."""
    return BrokerHarness.serving(S)


def test_a_request_goes_to_the_idle_stub_and_its_answer_back(served: BrokerHarness) -> None:
    served.infer(F, request(7))

    assert [(F, 7)] == [(w.peer, w.id) for w in served.finish_batch(S)]
    assert [wire.Reply(7, 0, "", wire.FINAL, 0, S)] == served.finals(F, 7)


def test_a_request_with_the_number_of_another_is_counted_and_the_first_answered(
    served: BrokerHarness,
) -> None:
    served.infer(F, request(1), request(1))
    served.infer(F, request(1))
    served.finish_batch(S)

    assert (1, 2) == (len(served.finals(F, 1)), served.core.traffic.malformed)
    assert served.core.instances[S].is_idle


def test_requests_wait_until_a_stub_is_both_connected_and_attached(world: BrokerHarness) -> None:
    world.infer(F, request(1))
    world.expect_stub(S)
    world.attach(S)
    world.drain_outbox()
    assert {} == world.batched_requests

    world.core.connected(wire.Hello(S, TOKEN, 1), [], world.now)
    world.drain_outbox()

    assert [1] == world.executing(S)


def test_without_a_batcher_each_request_is_a_batch_of_its_own(served: BrokerHarness) -> None:
    served.infer(F, request(1), request(2), request(3))

    assert [1] == served.executing(S)
    assert [1, 2, 3] == [served.finish_batch(S)[0].id for _ in range(3)]


def test_two_stubs_share_the_queue(served: BrokerHarness) -> None:
    served.add_stub(S2)

    served.infer(F, request(1), request(2), request(3))

    assert {1, 2} == {w.id for works in served.batched_requests.values() for w in works}


def test_a_busy_stub_that_dies_fails_what_it_executed_and_nothing_else(
    served: BrokerHarness,
) -> None:
    served.infer(F, request(1), request(2))

    served.kill_peer(S)

    text = (
        "Failed to process the request(s) for model instance 'm_2', message: "
        "Stub process 'm_2' is not healthy. (killed by SIGKILL)"
    )
    assert [wire.Reply(1, Unavailable.number, text, wire.FINAL)] == served.finals(F, 1)
    assert [] == served.finals(F, 2)
    served.add_stub(S2)
    assert [2] == [w.id for w in served.finish_batch(S2)]


def test_an_idle_stub_that_dies_is_given_nothing(served: BrokerHarness) -> None:
    served.add_stub(S2)
    served.kill_peer(S2)

    served.infer(F, request(1))

    assert [1] == served.executing(S)


@pytest.mark.row("E67", "A54")
def test_a_cancelled_queued_request_is_answered_and_never_executed(served: BrokerHarness) -> None:
    served.infer(F, request(1), request(2), request(3))

    served.cancel(F, 2)

    assert [Cancelled.number] == [r.code for r in served.finals(F, 2)]
    assert [] == served.cancelled_executions, "no stub has heard of it"
    assert [1, 3] == [served.finish_batch(S)[0].id for _ in range(2)]


def test_a_cancelled_executing_request_is_told_to_its_stub_and_answered_by_it(
    served: BrokerHarness,
) -> None:
    served.infer(F, request(1))

    served.cancel(F, 1)
    served.cancel(F, 1)

    assert [(S, wire.RequestKey(F, 1))] == served.cancelled_executions
    assert [] == served.finals(F, 1)
    served.finish_batch(S)
    assert 1 == len(served.finals(F, 1))


def test_a_deadline_that_passes_in_the_queue_is_an_error_at_once(served: BrokerHarness) -> None:
    served.infer(F, request(1), request(2, deadline_ns=5_000))
    assert 5_000 == served.core.due_ns

    served.tick(3_999)
    assert [] == served.finals(F, 2)
    served.tick(1)

    text = "Deadline Exceeded: the request waited for 0.000 s in the queue of 'm'"
    assert [wire.Reply(2, DeadlineExceeded.number, text, wire.FINAL)] == served.finals(F, 2)
    assert served.core.due_ns is None
    assert 1 == served.core.generations.by_number[1].statistics.deadlines


def test_a_deadline_that_passes_in_execution_cancels(served: BrokerHarness) -> None:
    served.infer(F, request(1, deadline_ns=5_000))

    served.tick(10_000)

    assert [(S, wire.RequestKey(F, 1))] == served.cancelled_executions
    text = "Deadline Exceeded: model 'm' was executing the request for 0.000 s"
    early = wire.Reply(1, DeadlineExceeded.number, text, wire.ABANDONED)
    assert [early] == served.replies[F, 1]
    served.finish_batch(S)
    assert [early, wire.Reply(1, 0, "", wire.FINAL, 0, S)] == served.replies[F, 1]


def test_of_what_was_sent_ahead_it_is_told_that_it_waited(world: BrokerHarness) -> None:
    world.add_stub(S, page=Page())
    world.infer(F, request(1), request(2, deadline_ns=2_000_001_000))

    world.tick(2_000_000_000)

    [early] = world.replies[F, 2]
    assert "the request waited for 2.000 s in the queue of 'm'" in early.text


def test_a_frontend_that_dies_has_its_requests_cancelled(served: BrokerHarness) -> None:
    served.infer(F, request(1), request(2))

    served.kill_peer(F)

    assert [(S, wire.RequestKey(F, 1))] == served.cancelled_executions
    served.finish_batch(S)
    assert {} == {k: v for k, v in served.batched_requests.items() if v}
    assert 0 == served.core.limits.unanswered


def test_a_retired_generation_is_drained_when_its_last_answer_is_out(served: BrokerHarness) -> None:
    served.infer(F, request(1), request(2))

    served.core.retire(wire.Retire(1))
    served.finish_batch(S)
    assert wire.Drained(1) not in served.supervisor_messages
    served.finish_batch(S)

    assert wire.Drained(1) == served.supervisor_messages[-1]


def test_a_stub_proves_itself_once(served: BrokerHarness) -> None:
    served.infer(F, request(1), request(2))

    served.finish_batch(S)
    served.finish_batch(S)

    assert [wire.FirstExecutionDone(S)] == served.supervisor_messages


def test_a_generation_without_requests_drains_at_once(world: BrokerHarness) -> None:
    world.retire(1)

    assert [wire.Drained(1)] == world.supervisor_messages


def test_a_straggler_for_a_drained_generation_goes_to_its_successor(world: BrokerHarness) -> None:
    world.add_generation(generation=2)
    world.add_stub(S, generation=2)
    world.core.retire(wire.Retire(1))
    world.core.remove(wire.RemoveGeneration(1, "unloaded"), world.now)

    world.infer(F, request(1, generation=1))

    assert [1] == [w.id for w in world.finish_batch(S)]


def test_a_straggler_is_refused_where_the_successor_has_another_interface(
    world: BrokerHarness,
) -> None:
    world.add_generation(generation=2, config={"name": "m", "max_batch_size": 8})
    world.core.remove(wire.RemoveGeneration(1, "unloaded"), world.now)

    world.infer(F, request(1, generation=1))

    assert [Unavailable.number] == [r.code for r in world.finals(F, 1)]


def test_removing_a_generation_answers_what_is_left_of_it(served: BrokerHarness) -> None:
    served.infer(F, request(1), request(2))

    served.remove(1, "gave up")

    assert ["gave up", "gave up"] == [served.finals(F, i)[0].text for i in (1, 2)]
    assert 0 == served.core.limits.unanswered


def test_an_execution_beyond_its_bound_is_told_and_the_stub_gets_nothing_more() -> None:
    parameters = {"MAX_execution_seconds": {"string_value": "0.5"}}
    world = BrokerHarness.serving(S, config={"parameters": parameters})
    world.infer(F, request(1), request(2))

    world.tick(500_000_000)

    assert [S] == [m.serial for m in world.supervisor_messages if type(m) is wire.ExecutionOverdue]
    world.finish_batch(S)  # it returned after all, before the kill
    assert not world.batched_requests[S]
    assert 1 == len(world.finals(F, 1))


def test_the_bound_of_an_execution_may_rest_and_hold_again() -> None:
    parameters = {"MAX_execution_seconds": {"string_value": "0.5"}}
    world = BrokerHarness.serving(S, config={"parameters": parameters})
    world.infer(F, request(1))
    world.core.rest_limits(wire.LimitsRest(S, 1))
    world.core.rest_limits(wire.LimitsRest(99, 1))  # of another server's, or a dead one

    world.tick(500_000_000)
    while_it_rests = [m for m in world.supervisor_messages if type(m) is wire.ExecutionOverdue]
    world.core.rest_limits(wire.LimitsRest(S, 0))
    world.tick(1_000_000_000)

    assert [] == while_it_rests
    assert [S] == [m.serial for m in world.supervisor_messages if type(m) is wire.ExecutionOverdue]


def test_an_answer_may_come_after_execute_has_returned(served: BrokerHarness) -> None:
    served.infer(F, request(1), request(2))
    batch = served.batched_requests[S].pop(0).batch

    served.send_results(S, executed=[wire.Executed(batch, 1, 1, 1)])
    assert [2] == served.executing(S), "the stub is free"
    served.send_results(S, outcome(1))

    assert 1 == len(served.finals(F, 1))


def test_results_that_were_not_asked_for_are_counted_and_the_others_pass(
    served: BrokerHarness,
) -> None:
    served.infer(F, request(1))
    batch = served.batched_requests[S][0].batch
    outcomes = [outcome(i) for i in (2, 1, 1)]
    executed = [wire.Executed(99, 0, 0, 0), wire.Executed(batch, 0, 0, 0)]

    served.send_results(S, *outcomes, executed=executed)

    assert 3 == served.core.traffic.malformed
    assert 1 == len(served.finals(F, 1))
    assert not served.finals(F, 2)
    assert served.core.instances[S].is_idle
    with pytest.raises(ProtocolError, match="bodies"):
        served.core.results(S, wire.Results(outcomes, []), [], served.now)


def test_of_a_large_batch_the_first_answers_may_leave_before_the_last_is_looked_at() -> None:
    world = BrokerHarness.serving(
        config={"name": "m", "max_batch_size": 32, "dynamic_batching": {}}
    )
    world.infer(F, *(request(number)._replace(batch_size=1) for number in range(20)))
    world.add_stub(S)
    there: list[int] = []

    def send() -> None:
        there.append(len(world.core.outbox.replies.pop(F)))

    world.core.on_some_replies = send
    world.finish_batch(S)

    assert [8, 8] == there
    assert 4 == sum(len(world.finals(F, number)) for number in range(20))


def test_a_token_opens_only_its_own_door(world: BrokerHarness) -> None:
    with pytest.raises(ProtocolError, match="token is wrong"):
        world.core.authenticate(wire.Hello(F, b"x" * 16, 1))
    with pytest.raises(ProtocolError, match="token is wrong"):
        world.core.authenticate(wire.Hello(99, TOKEN, 1))


def test_beyond_the_bound_requests_are_refused(world: BrokerHarness) -> None:
    world.core.limits.unanswered = MAX_UNANSWERED

    world.infer(F, request(1))

    assert ["Exceeds maximum queue size"] == [r.text for r in world.finals(F, 1)]


def test_requests_may_have_so_many_bytes_together(served: BrokerHarness) -> None:
    served.infer(F, request(1))
    (inflight,) = served.core.peers[F].requests.values()
    assert inflight.size == served.core.limits.unanswered_bytes > 0
    served.core.limits.unanswered_bytes += MAX_UNANSWERED_BYTES

    served.infer(F, request(2))

    assert ["Exceeds maximum queue size"] == [r.text for r in served.finals(F, 2)]
    served.finish_batch(S)
    assert MAX_UNANSWERED_BYTES == served.core.limits.unanswered_bytes


def test_statistics_count_requests_elements_and_executions(served: BrokerHarness) -> None:
    served.infer(F, request(1, batch_size=4), request(2))
    served.now += 10
    served.finish_batch(S)
    served.finish_batch(S, code=InternalError.number)

    [entry] = served.statistics()["model_stats"]
    assert (4, 2) == (entry["inference_count"], entry["execution_count"])
    assert 1 == entry["inference_stats"]["success"]["count"]
    assert 1 == entry["inference_stats"]["fail"]["count"]
    assert 1 == entry["zmqtriton"]["failures"]["BACKEND"]
    assert [1, 4] == [b["batch_size"] for b in entry["batch_stats"]]


def test_statistics_of_an_unknown_model_are_an_error(world: BrokerHarness) -> None:
    world.core.ask_statistics(F, wire.AskStatistics(5, "x", -1), 0)
    world.drain_outbox()

    answer = world.supervisor_messages[-1]
    assert (InvalidArgument.number, "requested model 'x' is not available") == (
        answer.code,
        answer.text,
    )


def test_statistics_of_an_unloaded_model_are_nobodys_while_it_finishes(
    served: BrokerHarness,
) -> None:
    served.infer(F, request(1))
    served.core.retire(wire.Retire(1))

    served.core.ask_statistics(F, wire.AskStatistics(5, "m", -1), 0)
    served.drain_outbox()

    assert InvalidArgument.number == served.supervisor_messages[-1].code


@pytest.fixture
def page() -> Page:
    return Page()


@pytest.fixture
def quick(world: BrokerHarness, page: Page) -> BrokerHarness:
    """One with a stub whose executions are short and which tells what it has begun."""
    world.add_stub(S, page=page)
    world.infer(F, request(1))
    world.finish_batch(S)
    return world


def test_a_stub_with_short_executions_is_sent_the_next_ones_ahead(quick: BrokerHarness) -> None:
    quick.infer(F, *(request(i) for i in range(2, 40)))

    assert list(range(2, 18)) == quick.executing(S)
    assert 16 == len({w.batch for w in quick.batched_requests[S]}), (
        "each in an execution of its own"
    )
    quick.finish_batch(S)
    assert 18 == quick.batched_requests[S][-1].id


def test_one_whose_executions_take_a_millisecond_is_sent_one_of_them(quick: BrokerHarness) -> None:
    scheduler = quick.core.generations.schedulers[1]
    while scheduler.placement.ahead.mean_ns < 1_200_000:
        scheduler.placement.finish_batch(scheduler.instances[S], 2_000_000)

    quick.infer(F, request(2), request(3), request(4))

    assert [2, 3] == quick.executing(S)


def test_one_with_longer_executions_is_not(quick: BrokerHarness) -> None:
    scheduler = quick.core.generations.schedulers[1]
    scheduler.placement.finish_batch(scheduler.instances[S], 10**9)

    quick.infer(F, request(2), request(3))

    assert [2] == quick.executing(S)


def test_what_a_dead_stub_had_not_begun_goes_to_the_next_in_order(
    quick: BrokerHarness, page: Page
) -> None:
    quick.infer(F, *(request(i) for i in range(2, 7)))
    page.last_begun_batch = quick.batched_requests[S][1].batch
    quick.finish_batch(S)

    quick.kill_peer(S)

    assert [Unavailable.number] == [r.code for r in quick.finals(F, 3)]
    quick.add_stub(S2)
    assert [4, 5, 6] == [quick.finish_batch(S2)[0].id for _ in range(3)]


def test_what_was_cancelled_while_it_was_sent_ahead_dies_with_its_stub(
    quick: BrokerHarness,
    page: Page,
) -> None:
    quick.infer(F, request(2), request(3))
    page.last_begun_batch = quick.batched_requests[S][0].batch

    quick.cancel(F, 3)
    assert [(S, wire.RequestKey(F, 3))] == quick.cancelled_executions
    quick.kill_peer(S)

    assert [Cancelled.number] == [r.code for r in quick.finals(F, 3)]
    assert 0 == quick.core.limits.unanswered


def test_what_was_sent_ahead_is_counted_as_waiting_until_nobody_wants_it(
    quick: BrokerHarness,
) -> None:
    scheduler = quick.core.generations.schedulers[1]

    quick.infer(F, *(request(i) for i in range(2, 22)))
    assert (4, 19) == (scheduler.pending, scheduler.waiting)

    quick.cancel(F, 3, 21)
    assert 17 == scheduler.waiting
    quick.finish_batch(S)
    assert 17 == scheduler.waiting, "the one that was cancelled has begun"


def test_nothing_is_sent_ahead_where_another_stub_could_be_free_first(quick: BrokerHarness) -> None:
    quick.add_stub(S2)

    quick.infer(F, *(request(i) for i in range(2, 6)))

    assert 2 == sum(map(len, quick.batched_requests.values()))


def test_the_end_of_a_stream_tells_how_many_responses_went_another_way() -> None:
    world = BrokerHarness.serving(
        S, config={"name": "m", "model_transaction_policy": {"decoupled": True}}
    )
    world.infer(F, request(1))

    for number, flags in ((0, 0), (9, wire.FINAL)):
        world.send_results(S, outcome(1, flags=flags, number=number))

    counters = world.core.generations.by_number[1].statistics
    assert (8, 2) == (counters.direct, counters.brokered)


# ------------------------------------------------------------------- stubs that die


def test_an_answer_that_is_read_after_the_word_of_the_death_is_delivered(
    served: BrokerHarness,
) -> None:
    served.infer(F, request(5))

    served.core.stop_giving_to(S)
    served.finish_batch(S)
    served.kill_peer(S)

    assert [0] == [reply.code for reply in served.replies[F, 5]]


def test_the_dying_are_given_nothing_more(served: BrokerHarness) -> None:
    served.infer(F, request(5))

    served.core.stop_giving_to(S)
    served.infer(F, request(6))
    served.finish_batch(S)
    assert not served.batched_requests[S]
    served.kill_peer(S)
    served.add_stub(S2)

    assert [6] == served.executing(S2)
