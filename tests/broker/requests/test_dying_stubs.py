"""A stub is dead, and what it had sent is still being read."""

from __future__ import annotations

from tests.broker.world import BrokerHarness, request

F, S, S2 = 1, 2, 3


def _world() -> BrokerHarness:
    world = BrokerHarness()
    world.add_generation()
    world.add_frontend(F)
    world.add_stub(S)
    return world


def test_an_answer_that_is_read_after_the_word_of_the_death_is_delivered() -> None:
    world = _world()
    world.infer(F, request(5))

    world.core.stop_giving_to(S)
    world.finish_batch(S)
    world.kill_peer(S)

    assert [0] == [reply.code for reply in world.replies[F, 5]]


def test_the_dying_are_given_nothing_more() -> None:
    world = _world()
    world.infer(F, request(5))

    world.core.stop_giving_to(S)
    world.infer(F, request(6))
    world.finish_batch(S)
    assert not world.batched_requests[S]
    world.kill_peer(S)
    world.add_stub(S2)

    assert [6] == [work.id for work in world.batched_requests[S2]]
