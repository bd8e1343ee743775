"""The broker's reactions to one event after the other."""

from __future__ import annotations

import pytest

from tests.broker.world import S2, TOKEN, BrokerHarness, F, Page, S, outcome, request
from zmqtriton.broker.requests.limits import MAX_UNANSWERED_BYTES
from zmqtriton_floor import wire
from zmqtriton_floor.errors import (
    Cancelled,
    DeadlineExceeded,
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


def test_a_request_with_the_number_of_another_is_counted_and_the_first_answered(
    served: BrokerHarness,
) -> None:
    served.infer(F, request(1), request(1))
    served.infer(F, request(1))
    served.finish_batch(S)

    assert (1, 2) == (len(served.finals(F, 1)), served.core.traffic.malformed)
    assert served.core.instances[S].is_idle


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

    assert ([(S, wire.RequestKey(F, 1))], []) == (served.cancelled_executions, served.finals(F, 1))
    served.finish_batch(S)
    assert 1 == len(served.finals(F, 1))


def test_a_deadline_that_passes_in_execution_cancels(served: BrokerHarness) -> None:
    served.infer(F, request(1, deadline_ns=5_000))

    served.tick(10_000)

    assert [(S, wire.RequestKey(F, 1))] == served.cancelled_executions
    text = "Deadline Exceeded: model 'm' was executing the request for 0.000 s"
    early = wire.Reply(1, DeadlineExceeded.number, text, wire.ABANDONED)
    assert [early] == served.replies[F, 1]
    served.finish_batch(S)
    assert [early, wire.Reply(1, 0, "", wire.FINAL, 0, S)] == served.replies[F, 1]


def test_a_stub_proves_itself_once(served: BrokerHarness) -> None:
    served.infer(F, request(1), request(2))

    served.finish_batch(S)
    served.finish_batch(S)

    assert [wire.FirstExecutionDone(S)] == served.supervisor_messages


def test_removing_a_generation_answers_what_is_left_of_it(served: BrokerHarness) -> None:
    served.infer(F, request(1), request(2))

    served.remove(1, "gave up")

    assert ["gave up", "gave up"] == [served.finals(F, i)[0].text for i in (1, 2)]
    assert 0 == served.core.limits.unanswered


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


def test_results_that_were_not_asked_for_are_counted_and_the_others_pass(
    served: BrokerHarness,
) -> None:
    served.infer(F, request(1))
    batch = served.batched_requests[S][0].batch
    outcomes = [outcome(i) for i in (2, 1, 1)]
    executed = [wire.Executed(99, 0, 0, 0), wire.Executed(batch, 0, 0, 0)]

    served.send_results(S, *outcomes, executed=executed)

    assert (3, 1) == (served.core.traffic.malformed, len(served.finals(F, 1)))
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

    assert ([8, 8], 4) == (there, sum(len(world.finals(F, number)) for number in range(20)))


def test_a_token_opens_only_its_own_door(world: BrokerHarness) -> None:
    with pytest.raises(ProtocolError, match="token is wrong"):
        world.core.authenticate(wire.Hello(F, b"x" * 16, 1))
    with pytest.raises(ProtocolError, match="token is wrong"):
        world.core.authenticate(wire.Hello(99, TOKEN, 1))


def test_requests_may_have_so_many_bytes_together(served: BrokerHarness) -> None:
    served.infer(F, request(1))
    (inflight,) = served.core.peers[F].requests.values()
    assert inflight.size == served.core.limits.unanswered_bytes > 0
    served.core.limits.unanswered_bytes += MAX_UNANSWERED_BYTES

    served.infer(F, request(2))

    assert ["Exceeds maximum queue size"] == [r.text for r in served.finals(F, 2)]
    served.finish_batch(S)
    assert MAX_UNANSWERED_BYTES == served.core.limits.unanswered_bytes


@pytest.mark.parametrize(
    ("model", "version", "text"),
    [
        ("x", -1, "requested model 'x' is not available"),
        ("m", 9, "requested model version is not available for model 'm'"),
    ],
)
def test_statistics_of_what_is_not_served_are_an_error(
    served: BrokerHarness, model: str, version: int, text: str
) -> None:
    served.core.ask_statistics(F, wire.AskStatistics(5, model, version), 0)
    served.drain_outbox()

    answer = served.supervisor_messages[-1]
    assert (InvalidArgument.number, text) == (answer.code, answer.text)


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
