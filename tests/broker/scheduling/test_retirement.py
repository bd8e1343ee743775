"""Single stubs of a generation that goes on, and who asks whom."""

from __future__ import annotations

import pytest

from tests.broker.world import S2, BrokerHarness, F, S, request
from zmqtriton_floor import wire


@pytest.fixture
def world() -> BrokerHarness:
    return BrokerHarness.serving()


def _drained(world: BrokerHarness) -> list[wire.Drained]:
    return [message for message in world.supervisor_messages if isinstance(message, wire.Drained)]


def test_a_stub_that_is_dismissed_answers_what_it_has_and_gets_nothing_new(
    world: BrokerHarness,
) -> None:
    world.add_stub(S)
    world.infer(F, request(1))
    world.add_stub(S2)

    world.core.retire(wire.Retire(1, S))
    world.infer(F, request(2), request(3))
    world.drain_outbox()
    assert [] == _drained(world)
    assert [2] == world.executing(S2)

    world.finish_batch(S)
    assert [wire.Drained(1, S)] == _drained(world)
    assert [1] == [reply.id for reply in world.finals(F, 1)]
    world.finish_batch(S2)
    assert [3] == world.executing(S2)
    assert [] == world.batched_requests[S]


def test_an_idle_stub_leaves_at_once_and_the_rest_waits_for_others(world: BrokerHarness) -> None:
    world.add_stub(S)

    world.core.retire(wire.Retire(1, S))
    world.infer(F, request(1))

    assert [wire.Drained(1, S)] == _drained(world)
    assert S not in world.batched_requests
    world.add_stub(S2)
    assert [1] == world.executing(S2)


def test_a_stub_that_dies_while_it_leaves_takes_only_its_own_along(world: BrokerHarness) -> None:
    world.add_stub(S)
    world.add_stub(S2)
    world.infer(F, request(1), request(2))
    world.core.retire(wire.Retire(1, S))

    world.kill_peer(S)
    world.finish_batch(S2)

    codes = sorted(world.finals(F, own_id)[0].code for own_id in (1, 2))
    assert codes[0] == 0
    assert codes[1] != 0


def test_a_stub_that_nobody_knows_has_nothing_left(world: BrokerHarness) -> None:
    world.core.retire(wire.Retire(1, 99))
    world.drain_outbox()

    assert [wire.Drained(1, 99)] == _drained(world)


def test_a_dismissal_holds_for_a_stub_that_says_hello_later(world: BrokerHarness) -> None:
    world.expect_stub(S)
    world.attach(S)

    world.core.retire(wire.Retire(1, S))
    world.drain_outbox()
    assert [] == _drained(world)
    hello = wire.Hello(S, b"t" * 16, 1)
    world.core.authenticate(hello)
    world.core.connected(hello, [], world.now)
    world.infer(F, request(1))

    assert [wire.Drained(1, S)] == _drained(world)
    assert S not in world.batched_requests


def test_other_instance_groups_change_nothing_else(world: BrokerHarness) -> None:
    world.infer(F, request(1))

    world.add_generation(config={"name": "m", "instance_group": [{"count": 3}]})
    world.add_stub(S)

    assert [1] == world.executing(S)
    assert 3 == world.core.generations[1].expected


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


def test_a_generation_is_settled_when_it_has_answered_its_last_request(
    world: BrokerHarness,
) -> None:
    world.add_stub(S)
    world.infer(F, request(1))
    world.core.retire(wire.Retire(1))
    world.drain_outbox()
    assert [] == world.settled

    world.finish_batch(S)

    assert [wire.Settled(1)] == world.settled


def test_a_broker_that_has_followed_another_settles_nothing_before_all_have_come() -> None:
    world = BrokerHarness()
    world.core.configure(2)
    world.add_generation()
    world.add_frontend(F)
    world.add_stub(S)
    world.add_stub(S2)
    world.kill_peer(S)

    world.tick(100_000_000_000)
    assert [] == world.settled
    world.core.peers[F].has_resent = True
    world.tick(1_000_000_000)
    world.tick(9_000_000_000)
    assert [] == world.settled
    world.tick(1_000_000_000)

    assert [wire.Settled(1, S)] == world.settled
    assert world.core.due_ns is None
