"""A broker that follows another: nothing is executed twice, and nothing plain is lost."""

from __future__ import annotations

import pytest

from tests.broker.world import S2, S3, TOKEN, BrokerHarness, F, Page, S, outcome, request
from zmqtriton.broker.requests.recovery import LEFTOVER_NS
from zmqtriton_floor import wire
from zmqtriton_floor.errors import DeadlineExceeded, Unavailable
from zmqtriton_floor.execution_progress import FENCE_NS
from zmqtriton_floor.settings.broker import BrokerSettings


@pytest.fixture
def world() -> BrokerHarness:
    """The supervisor has told the new broker of two stubs; they have not said hello yet."""
    world = BrokerHarness.serving()
    for serial in (S, S2):
        world.expect_stub(serial)
        world.attach(serial)
    return world


A, B = wire.Block(S, 1, 1), wire.Block(S, 1, 2)


def _resend(world: BrokerHarness, *ids: int) -> None:
    world.infer(F, *(request(i, flags=wire.RESENT) for i in ids))


def _hello(
    world: BrokerHarness,
    serial: int,
    received: tuple[int, ...] = (),
    answered: tuple[wire.Outcome, ...] = (),
    is_executing: int = 0,
    asker: int = F,
) -> None:
    keys = [wire.RequestKey(asker, i) for i in received]
    hello = wire.Hello(serial, TOKEN, 2, keys, [*answered], is_executing)
    world.core.connected(hello, [b"body"] * len(answered), world.now)
    world.drain_outbox()


@pytest.fixture
def resent(world: BrokerHarness) -> BrokerHarness:
    """The next broker, which was asked again."""
    _resend(world, 1)
    return world


def test_a_resent_request_waits_until_all_stubs_have_said_hello(resent: BrokerHarness) -> None:
    _hello(resent, S)
    assert not resent.batched_requests

    _hello(resent, S2)

    assert [1] == [w.id for works in resent.batched_requests.values() for w in works]


class _CountingPage(Page):
    """Of a stub that may have begun anything."""

    looks = 0

    def may_have_begun(self, key: tuple[int, int]) -> bool:
        self.looks += 1
        return True


def test_of_many_resent_requests_each_is_looked_at_once_or_twice(world: BrokerHarness) -> None:
    page = _CountingPage()
    world.expect_stub(4)
    world.attach(4, page=page)
    for serial in (S, S2):
        _hello(world, serial)
    world.now += FENCE_NS

    for first in range(1, 301, 100):
        _resend(world, *range(first, first + 100))
    world.now += 2 * FENCE_NS
    world.core.tick(world.now)

    assert 300 <= page.looks <= 600
    assert world.core.recovery.next_due_ns() is None


def test_a_new_request_does_not_wait(resent: BrokerHarness) -> None:
    resent.infer(F, request(2))

    _hello(resent, S)

    assert [2] == resent.executing(S)


def test_what_a_stub_has_received_is_awaited_and_not_executed_again(resent: BrokerHarness) -> None:
    _hello(resent, S, received=(1,))
    _hello(resent, S2)
    assert not resent.batched_requests

    resent.send_results(S, outcome(1))

    assert (1, 0) == (len(resent.finals(F, 1)), resent.core.traffic.malformed)


def test_a_deadline_tells_how_long_at_least_an_earlier_brokers_request_was_executing(
    world: BrokerHarness,
) -> None:
    _hello(world, S, received=(1,))
    _hello(world, S2)
    world.infer(F, request(1, flags=wire.RESENT, deadline_ns=world.now + 2_000_000_000))

    world.tick(2_000_000_000)

    [early] = world.replies[F, 1]
    text = "Deadline Exceeded: model 'm' was executing the request for at least 2.000 s"
    assert (DeadlineExceeded.number, text, wire.ABANDONED) == early[1:4]


def test_a_stub_that_is_still_executing_gets_nothing_until_that_is_over(
    world: BrokerHarness,
) -> None:
    _hello(world, S, received=(1,), is_executing=1)
    _hello(world, S2, received=(9,))
    world.kill_peer(S2)
    world.infer(F, request(2))
    assert not world.batched_requests

    # Under the number that its first broker had given it.
    world.send_results(S, executed=[wire.Executed(77, 1, 1, 1)])

    assert ([2], 0) == (world.executing(S), world.core.traffic.malformed)


def test_what_a_stub_has_answered_is_passed_on(resent: BrokerHarness) -> None:
    _hello(resent, S, answered=(outcome(1),))
    _hello(resent, S2)

    assert [0] == [r.code for r in resent.finals(F, 1)]
    assert not resent.batched_requests


def test_an_answer_may_come_before_its_asker_asks_again(world: BrokerHarness) -> None:
    _hello(world, S, received=(1,))
    _hello(world, S2)
    world.send_results(S, outcome(1))

    _resend(world, 1)

    assert [0] == [r.code for r in world.finals(F, 1)]
    assert not world.batched_requests


def test_what_a_stub_had_that_died_without_a_hello_is_not_executed_again(
    resent: BrokerHarness,
) -> None:
    _hello(resent, S)

    resent.kill_peer(S2)

    assert [Unavailable.number] == [r.code for r in resent.finals(F, 1)]
    assert not resent.batched_requests


def test_of_a_stub_that_dies_without_a_hello_its_page_tells_what_it_had_begun(
    world: BrokerHarness,
) -> None:
    page = Page()
    page.begin(1, [(F, 1)])
    world.expect_stub(4)
    world.attach(4, page=page)
    _hello(world, S)
    _hello(world, S2)

    world.kill_peer(4)
    _resend(world, 1, 2)

    [refused] = world.finals(F, 1)
    assert "ended before it could tell the next one what it had begun" in refused.text
    assert [2] == [w.id for works in world.batched_requests.values() for w in works]
    assert page.is_closed


def test_an_answer_that_the_dead_broker_had_kept_back_is_lost_and_not_made_again() -> None:
    config = {"dynamic_batching": {"preserve_ordering": True}}
    before, world = (BrokerHarness.serving(S, S2, config=config) for _ in range(2))
    before.infer(F, request(1), request(2))
    [late] = [s for s, works in before.batched_requests.items() if works[0].id == 2]
    before.finish_batch(late)
    assert {} == before.replies

    world.core.begun.adopt(before.core.begun._memory)
    _resend(world, 1, 2)

    assert [1] == [w.id for works in world.batched_requests.values() for w in works]
    for serial in (S, S2):
        if world.batched_requests.get(serial):
            world.finish_batch(serial)
    [refused] = world.finals(F, 2)
    assert "kept the answer back" in refused.text
    before.finish_batch(S if late == S2 else S2)
    world.core.begun.adopt(before.core.begun._memory)
    assert not world.core.begun.had_begun((F, 2))


def test_a_stub_that_has_a_resent_request_and_dies_fails_it(resent: BrokerHarness) -> None:
    _hello(resent, S, received=(1,))
    _hello(resent, S2)

    resent.kill_peer(S)

    assert [Unavailable.number] == [r.code for r in resent.finals(F, 1)]


def test_a_stub_that_dies_before_what_it_has_is_asked_for_again_fails_it(
    world: BrokerHarness,
) -> None:
    _hello(world, S, received=(1,))
    _hello(world, S2)
    world.kill_peer(S)

    _resend(world, 1)

    [refused] = world.finals(F, 1)
    assert Unavailable.number == refused.code
    assert "'m_2' is not healthy. (killed by SIGKILL)" in refused.text
    assert not world.batched_requests
    assert 0 == world.core.limits.unanswered


def test_a_waiting_request_can_be_cancelled_and_expire(resent: BrokerHarness) -> None:
    resent.infer(F, request(2, flags=wire.RESENT, deadline_ns=resent.now + 10))

    resent.cancel(F, 1)
    resent.tick(10)
    _hello(resent, S)
    _hello(resent, S2)

    assert [1, 1] == [len(resent.finals(F, i)) for i in (1, 2)]
    [expired] = resent.finals(F, 2)
    assert "until the instances of 'm' would tell" in expired.text
    assert not resent.batched_requests
    assert (0, 0) == (resent.core.limits.unanswered, resent.core.generations.schedulers[1].pending)


def test_responses_of_a_stream_wait_in_order_for_their_asker(world: BrokerHarness) -> None:
    _hello(world, S, received=(1,))
    _hello(world, S2)
    for number in (3, 4):
        world.send_results(S, outcome(1, flags=0, number=number))

    _resend(world, 1)
    world.send_results(S, outcome(1, number=5))

    assert [3, 4, 5] == [r.number for r in world.replies[F, 1]]
    assert 0 == world.core.limits.unanswered


# ------------------------------------------------------------------------ blocks


def _report_held(world: BrokerHarness, holder: int, *blocks: wire.Block) -> None:
    world.core.recovery.take_held_blocks(holder, wire.HeldBlocks(list(blocks), 1))
    world.drain_outbox()


def test_owners_hear_who_still_reads_and_then_that_all_have_told(world: BrokerHarness) -> None:
    world.core.recovery.await_lease_reports()
    _report_held(world, F, A, B)
    _report_held(world, S)
    assert ({S: [A, B]}, []) == (world.leased_blocks, world.leases_reported)

    _report_held(world, S2)

    assert [F, S, S2] == sorted(world.leases_reported)
    world.core.blocks.release(F, [A])
    world.drain_outbox()
    assert {S: [A]} == world.released_blocks


def test_every_role_that_serves_clients_is_awaited(world: BrokerHarness) -> None:
    world.core.configure(2, BrokerSettings(serving_roles=("http", "local")))
    for serial, role in ((4, "local"), (5, "metrics")):
        world.core.expect(wire.ExpectPeer(serial, TOKEN, role, role, 0))
    world.core.recovery.await_lease_reports()
    for holder in (F, S, S2):
        _report_held(world, holder)
    assert [] == world.leases_reported

    _report_held(world, 4)

    assert [F, S, S2, 4] == sorted(set(world.leases_reported) - {5})


def test_nobody_waits_for_the_word_of_the_dead(world: BrokerHarness) -> None:
    world.core.recovery.await_lease_reports()
    _report_held(world, F, A)
    _report_held(world, S)

    world.kill_peer(S2)

    assert [F, S] == sorted(world.leases_reported)


def test_all_may_have_told_before_it_is_known_who_they_are(world: BrokerHarness) -> None:
    for holder in (F, S, S2):
        _report_held(world, holder)
    assert [] == world.leases_reported

    world.core.recovery.await_lease_reports()
    world.drain_outbox()

    assert [F, S, S2] == sorted(world.leases_reported)


def _hello_with_blocks(world: BrokerHarness, asker: int) -> None:
    _hello(world, S, answered=(outcome(1, peer=asker, blocks=[A]),))


def test_an_answer_that_nobody_asks_for_again_is_dropped_with_its_blocks(
    world: BrokerHarness,
) -> None:
    world.core.peers[F].has_resent = True
    _hello_with_blocks(world, F)

    world.tick(LEFTOVER_NS - 1)
    assert {} == world.released_blocks
    world.tick(1)

    assert {S: [A]} == world.released_blocks
    assert world.core.due_ns is None


def test_an_answer_waits_for_an_asker_that_has_not_said_hello(world: BrokerHarness) -> None:
    _hello_with_blocks(world, F)
    _hello(world, S2)
    world.tick(LEFTOVER_NS)

    _resend(world, 1)

    assert [0] == [r.code for r in world.finals(F, 1)]
    assert ({}, 1) == (world.released_blocks, world.core.blocks.leases.count)


@pytest.mark.parametrize("asker", [0, 77], ids=["the dead broker", "a dead process"])
def test_what_nobody_can_ask_for_again_is_dropped_at_once(world: BrokerHarness, asker: int) -> None:
    _hello_with_blocks(world, asker)

    assert {S: [A]} == world.released_blocks


def test_what_is_executed_for_nobody_is_cancelled_and_its_answer_dropped(
    world: BrokerHarness,
) -> None:
    _hello(world, S, received=(9,), is_executing=1, asker=0)
    assert [(S, wire.RequestKey(0, 9))] == world.cancelled_executions

    world.send_results(S, outcome(9, peer=0, blocks=[A]))

    assert ({S: [A]}, 0) == (world.released_blocks, world.core.traffic.malformed)


def test_an_answer_for_an_asker_that_dies_is_dropped_with_it(world: BrokerHarness) -> None:
    _hello_with_blocks(world, F)

    world.kill_peer(F)

    assert {S: [A]} == world.released_blocks


def test_an_outcome_of_nothing_that_was_asked_leaves_no_block_behind(world: BrokerHarness) -> None:
    _hello(world, S)

    world.send_results(S, outcome(9, blocks=[A]))

    assert {S: [A]} == world.released_blocks


# ---------------------------------------------------- stubs that say nothing, reloads


@pytest.fixture
def bounded() -> BrokerHarness:
    """One stub, that has not said hello; its model bounds its executions to a second."""
    limit = {"max_execution_seconds": {"string_value": "1"}}
    world = BrokerHarness.serving(config={"parameters": limit})
    world.expect_stub(S)
    world.attach(S)
    return world


def test_a_stub_that_hangs_from_before_is_ended_when_its_time_is_over(
    bounded: BrokerHarness,
) -> None:
    _resend(bounded, 1)
    bounded.tick(999_999_999)
    assert [] == bounded.supervisor_messages

    bounded.tick(1)
    assert [(wire.ExecutionOverdue, S)] == [
        (type(message), message.serial) for message in bounded.supervisor_messages
    ]
    bounded.kill_peer(S)

    assert [Unavailable.number] == [r.code for r in bounded.finals(F, 1)]


def test_a_stub_that_says_hello_too_late_is_given_nothing(bounded: BrokerHarness) -> None:
    bounded.tick(1_000_000_000)
    _hello(bounded, S)
    bounded.infer(F, request(1))

    assert {} == bounded.batched_requests


def test_a_stub_that_says_hello_in_time_is_not_ended(bounded: BrokerHarness) -> None:
    _hello(bounded, S)
    bounded.tick(2_000_000_000)
    assert [] == bounded.supervisor_messages

    bounded.infer(F, request(1))

    assert [1] == [work.id for work in bounded.batched_requests[S]]


def test_the_time_of_an_execution_is_not_counted_anew_with_the_hello(
    bounded: BrokerHarness,
) -> None:
    bounded.tick(600_000_000)
    _hello(bounded, S, received=(1,), is_executing=1)

    bounded.tick(400_000_000)

    assert [wire.ExecutionOverdue] == [type(message) for message in bounded.supervisor_messages]


@pytest.fixture
def reloading(world: BrokerHarness) -> BrokerHarness:
    """Generation 2, of a stub that has not said hello either, takes the place of 1."""
    world.add_generation(2)
    world.expect_stub(S3)
    world.attach(S3, 2)
    return world


@pytest.fixture
def reloaded(reloading: BrokerHarness) -> BrokerHarness:
    """The first generation is no more."""
    for serial in (S, S2):
        reloading.kill_peer(serial)
    reloading.remove(1)
    return reloading


def test_a_request_for_a_generation_that_is_gone_waits_for_the_stubs_of_the_next() -> None:
    world = BrokerHarness.serving()
    world.add_generation(2)
    world.remove(1)
    world.expect_stub(S)
    world.attach(S, 2)
    _resend(world, 1, 2)
    assert {} == world.batched_requests

    _hello(world, S, received=(1,))

    assert [2] == world.executing(S)


@pytest.mark.parametrize("generation", [1, 0], ids=["of a client", "of a model"])
def test_what_stubs_may_have_run_that_ended_with_the_broker_is_not_run_by_the_next(
    reloaded: BrokerHarness, generation: int
) -> None:
    reloaded.infer(F, request(1, generation, model="" if generation else "m", flags=wire.RESENT))
    _hello(reloaded, S3)

    assert [Unavailable.number] == [r.code for r in reloaded.finals(F, 1)]
    assert {} == reloaded.batched_requests


def test_what_a_stub_of_an_earlier_generation_executes_is_awaited(reloading: BrokerHarness) -> None:
    _hello(reloading, S3)
    # By name it goes to the newest, and that was another one then.
    reloading.infer(F, request(1, 0, model="m", flags=wire.RESENT))
    assert {} == reloading.batched_requests

    _hello(reloading, S, received=(1,))
    _hello(reloading, S2)
    reloading.send_results(S, outcome(1))

    assert {} == reloading.batched_requests
    assert [0] == [r.code for r in reloading.finals(F, 1)]
    assert 0 == reloading.core.limits.unanswered


def test_what_waits_for_the_word_of_stubs_is_refused_with_their_generation(
    resent: BrokerHarness,
) -> None:
    resent.remove(1)

    assert [Unavailable.number] == [r.code for r in resent.finals(F, 1)]
    assert 0 == resent.core.limits.unanswered


def test_what_waits_for_stubs_of_another_generation_is_refused_when_its_own_is_removed(
    world: BrokerHarness,
) -> None:
    world.add_generation(generation=2)
    world.infer(F, request(1, generation=2, flags=wire.RESENT))
    assert [] == world.finals(F, 1)

    world.remove(2, "gave up")

    assert [Unavailable.number] == [reply.code for reply in world.finals(F, 1)]
    assert 0 == world.core.limits.unanswered


@pytest.mark.parametrize("says_hello", [True, False])
def test_a_removed_model_leaves_doubts_about_stubs_that_have_told_nothing_alone(
    world: BrokerHarness, says_hello: bool
) -> None:
    _hello(world, S)
    if says_hello:
        _hello(world, S2)

    world.remove(1)
    world.add_generation(2)
    world.add_stub(5, 2)
    world.infer(F, request(1, generation=0, model="m", flags=wire.RESENT))

    assert says_hello == bool(world.batched_requests.get(5))
    assert says_hello != bool(world.finals(F, 1))


def test_once_all_have_reported_nothing_is_kept_of_processes_that_die() -> None:
    world = BrokerHarness.serving(S)
    world.core.recovery.await_lease_reports()
    for serial in (F, S):
        world.core.recovery.take_held_blocks(serial, wire.HeldBlocks([], 1))

    for serial in range(S + 1, S + 10):
        world.add_stub(serial)
        world.kill_peer(serial - 1)

    assert not world.core.recovery._reported_peers
