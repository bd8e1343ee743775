"""A broker that follows another: nothing is executed twice, and nothing plain is lost."""

from __future__ import annotations

import pytest

from tests.broker.world import S2, S3, TOKEN, BrokerHarness, F, Page, S, outcome, request
from zmqtriton.broker.requests.recovery import LEFTOVER_NS
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable
from zmqtriton_floor.execution_progress import FENCE_NS


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


@pytest.mark.parametrize(("begun", "executing"), [([], [1]), ([(F, 1)], [])])
def test_what_a_silent_stub_cannot_have_begun_is_executed_when_that_is_sure(
    world: BrokerHarness, begun: list[tuple[int, int]], executing: list[int]
) -> None:
    page = Page()
    page.begin(1, begun)
    world.expect_stub(4)
    world.attach(4, page=page)
    for serial in (S, S2):
        _hello(world, serial)
    _resend(world, 1)
    assert {} == world.batched_requests

    world.tick(2 * FENCE_NS)

    assert executing == [*world.executing(S), *world.executing(S2)]


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


def test_an_answer_that_the_dead_broker_had_kept_back_is_lost_and_not_made_again() -> None:
    config = {"dynamic_batching": {"preserve_ordering": True}}
    before, world = (BrokerHarness.serving(S, S2, config=config) for _ in range(2))
    before.infer(F, request(1), request(2))
    [late] = [s for s, works in before.batched_requests.items() if works[0].id == 2]
    before.finish_batch(late)
    assert {} == before.replies

    # the segment is the supervisor's; here the two brokers are of one process
    world.core.begun.adopt(before.core.begun._memory)
    _resend(world, 1, 2)

    assert [1] == [w.id for works in world.batched_requests.values() for w in works]
    for serial in (S, S2):
        if world.batched_requests.get(serial):
            world.finish_batch(serial)
    [refused] = world.finals(F, 2)
    assert "kept the answer back" in refused.text
    before.finish_batch(S if late == S2 else S2)
    # the segment is the supervisor's; here the two brokers are of one process
    world.core.begun.adopt(before.core.begun._memory)
    assert not world.core.begun.had_begun((F, 2))


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
    _hello_with_blocks(world, F)
    world.tick(LEFTOVER_NS)  # the asker may repeat it still
    world.core.peers[F].has_resent = True

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


def test_what_a_client_has_left_without_a_broker_is_cancelled_in_the_end(
    world: BrokerHarness,
) -> None:
    world.core.recovery.begin(2, ["http"])
    world.core.recovery.once_over(lambda: None)
    world.core.peers[F].has_resent = True
    for serial in (S, S2):
        _hello(world, serial, received=(9,) if serial == S else ())

    world.tick(LEFTOVER_NS - 1)
    assert [] == world.cancelled_executions, "it may be repeated"
    for _ in range(2):  # all are here at the first
        world.tick(LEFTOVER_NS)

    assert [(S, wire.RequestKey(F, 9))] == world.cancelled_executions


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


def test_the_time_of_an_execution_is_not_counted_anew_with_the_hello(
    bounded: BrokerHarness,
) -> None:
    bounded.tick(600_000_000)
    _hello(bounded, S, received=(1,), is_executing=1)

    bounded.tick(400_000_000)

    assert [wire.ExecutionOverdue] == [type(message) for message in bounded.supervisor_messages]


@pytest.fixture
def reloaded(world: BrokerHarness) -> BrokerHarness:
    """Generation 2, of a stub that has not said hello either, has taken the place of 1."""
    world.add_generation(2)
    world.expect_stub(S3)
    world.attach(S3, 2)
    for serial in (S, S2):
        world.kill_peer(serial)
    world.remove(1)
    return world


@pytest.mark.parametrize("generation", [1, 0], ids=["of a client", "of a model"])
def test_what_stubs_may_have_run_that_ended_with_the_broker_is_not_run_by_the_next(
    reloaded: BrokerHarness, generation: int
) -> None:
    reloaded.infer(F, request(1, generation, model="" if generation else "m", flags=wire.RESENT))
    _hello(reloaded, S3)

    assert [Unavailable.number] == [r.code for r in reloaded.finals(F, 1)]
    assert {} == reloaded.batched_requests


def test_what_waits_for_the_word_of_stubs_is_refused_with_their_generation(
    resent: BrokerHarness,
) -> None:
    resent.remove(1)

    assert [Unavailable.number] == [r.code for r in resent.finals(F, 1)]
    assert 0 == resent.core.limits.unanswered
