"""A stub is dead, and what it had sent is still being read."""

from __future__ import annotations

from tests.broker.world import World, request

F, S, S2 = 1, 2, 3


def _world() -> World:
    world = World()
    world.serve()
    world.frontend(F)
    world.stub(S)
    return world


def test_an_answer_that_is_read_after_the_word_of_the_death_is_delivered() -> None:
    world = _world()
    world.infer(F, request(5))

    world.core.stop_giving_to(S)
    world.finish(S)
    world.gone(S)

    assert [0] == [reply.code for reply in world.replies[F, 5]]


def test_the_dying_are_given_nothing_more() -> None:
    world = _world()
    world.infer(F, request(5))

    world.core.stop_giving_to(S)
    world.infer(F, request(6))
    world.finish(S)
    assert not world.works[S]
    world.gone(S)
    world.stub(S2)

    assert [6] == [work.id for work in world.works[S2]]
