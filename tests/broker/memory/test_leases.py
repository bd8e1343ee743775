"""Blocks of memory: everyone who holds one is accounted for, and the dead hold nothing."""

from __future__ import annotations

import pytest

from tests.broker.world import S2, BrokerHarness, F, S, request
from zmqtriton.broker.memory.blocks import HolderLeases
from zmqtriton_floor import wire
from zmqtriton_floor.wire import Block, Reference

F2 = 4
A, B = Block(S, 1, 1), Block(S, 1, 2)


@pytest.fixture
def leases() -> HolderLeases:
    return HolderLeases()


def test_a_lease_is_released_once(leases: HolderLeases) -> None:
    leases.lease(F, [A, B])

    assert ([A], [], 1) == (leases.release(F, [A, A]), leases.release(F2, [B]), leases.count)


def test_the_same_block_may_be_leased_twice(leases: HolderLeases) -> None:
    leases.lease(F, [A])
    leases.lease(F, [A])

    assert [A, A] == leases.release(F, [A, A, A])


def test_the_dead_hold_nothing_and_others_hold_what_was_theirs(leases: HolderLeases) -> None:
    leases.lease(F, [A, B])
    leases.lease(S, [Block(S2, 1, 1)])

    assert [Block(S2, 1, 1)] == leases.forget_holder(S)
    assert ([A, B], 0) == (leases.release(F, [A, B]), leases.count)


def test_a_lease_in_other_hands_is_no_news_to_its_owner(leases: HolderLeases) -> None:
    leases.lease(0, [A])

    leases.hand_over(0, F, [A, B])

    assert ([], [A]) == (leases.release(0, [A]), leases.release(F, [A, B]))


def test_what_was_told_of_a_block_is_known_as_long_as_somebody_holds_it(
    leases: HolderLeases,
) -> None:
    leases.lease(0, [A, B, A])
    leases.widen_extent(A, 100, 200)
    leases.widen_extent(A, 300, 400)

    leases.hand_over(0, F, [A, A])

    assert leases.covers(F, A, 100, 400)
    assert not leases.covers(F, A, 99, 400)
    assert not leases.covers(F, A, 100, 401)
    assert not leases.covers(0, A, 100, 200)
    leases.release(F, [A])
    assert not leases.covers(F, A, 0, 1)
    leases.forget_holder(F)
    leases.release(0, [B])
    # what covers nothing any more would only grow
    assert (0, {}, {}) == (leases.count, leases._extents, dict(leases._all))
    leases.widen_extent(A, 0, 1)
    # nor here
    assert {} == leases._extents


def test_a_guest_holds_what_its_ended_instance_may_read(world: BrokerHarness) -> None:
    read, kept = Block(F, 5, 5), Block(F, 5, 6)
    tensor = wire.Tensor("I", 11, [25_000], Reference(*read, 0, 100_000, b""))
    world.infer(F, request(1), body=wire.encode_body(wire.RequestBody("", {}, [], [tensor])))
    world.core.blocks.grant_lease(S, [kept, kept])
    world.add_frontend(F2)

    world.kill_peer(S, guest=F2)

    leases = world.core.blocks.leases
    assert [kept, kept, read] == leases.held_by(F2)
    assert [kept, kept, read] == world.leased_blocks[F]
    world.kill_peer(F2)
    assert ([kept, kept, read], 0) == (world.released_blocks[F], leases.count)


def test_an_ended_instance_of_a_guest_that_is_gone_holds_nothing(world: BrokerHarness) -> None:
    world.infer(F, request(1))
    world.core.blocks.grant_lease(S, [Block(F, 1, 1)])

    world.kill_peer(S, guest=F2)

    assert 0 == world.core.blocks.leases.count


def test_holders_are_told_with_their_bytes_as_far_as_these_are_known(leases: HolderLeases) -> None:
    leases.lease(F, [A, A, B])
    leases.widen_extent(A, 100, 300)
    leases.widen_extent(B, 0, 1 << 64)
    leases.lease(F2, [A])

    assert [(F, S, 200), (F2, S, 200)] == leases.sizes()


def test_an_answer_to_the_dead_is_released_at_once(world: BrokerHarness) -> None:
    world.infer(F, request(1))
    world.kill_peer(F)

    world.finish_batch(S, answer=(b"", [A]))

    assert ({S: [A]}, 0) == (world.released_blocks, world.core.blocks.leases.count)


def test_a_block_that_is_read_after_its_request_is_leased_once_more(world: BrokerHarness) -> None:
    other = Block(F, 5, 5)
    tensor = wire.Tensor("I", 11, [25_000], wire.Reference(*other, 0, 100_000))
    world.infer(F, request(1), body=wire.encode_body(wire.RequestBody("", {}, [], [tensor])))

    world.core.grant_lease(S, wire.Lease([A, other]))

    assert ({S: [A], F: [other]}, 2) == (world.core.outbox.leases, world.core.blocks.leases.count)


def test_a_readers_grants_reach_the_stub_of_its_request(world: BrokerHarness) -> None:
    world.infer(F, request(1))

    world.core.acknowledge(
        F, wire.StreamAcks([wire.StreamAck(99, 1, 64), wire.StreamAck(99, 7, 64)])
    )

    assert {S: [wire.StreamAck(F, 1, 64)]} == world.core.outbox.stream_acks
