"""Deaths are held back until what the dead have sent is here."""

from __future__ import annotations

from tests.broker.world import World, request
from zmqtriton.broker.departures import WITHIN_NS, Departures
from zmqtriton_floor import wire

F, S, S2 = 1, 2, 3
FIRST, SECOND = wire.Gone(S, "killed"), wire.Gone(S2, "killed")


def test_who_has_nothing_more_to_say_departs_and_others_stay() -> None:
    departures = Departures()
    departures.hold(FIRST, 10)
    departures.hold(SECOND, 20)

    assert [SECOND] == departures.take(lambda serial: serial == S2, 30)

    assert departures
    assert 10 + WITHIN_NS == departures.next_ns


def test_nobody_is_held_for_longer_than_the_bound() -> None:
    departures = Departures()
    departures.hold(FIRST, 10)
    departures.hold(SECOND, 20)

    assert [FIRST] == departures.take(lambda serial: False, 10 + WITHIN_NS)
    assert [SECOND] == departures.take(lambda serial: False, 20 + WITHIN_NS)

    assert not departures
    assert 0 == departures.next_ns


def test_half_a_second_is_not_too_long_for_what_the_dead_have_sent() -> None:
    departures = Departures()
    departures.hold(FIRST, 10)

    # Where the machine has no time for libzmq's thread, which reads it.
    assert [] == departures.take(lambda serial: False, 10 + 500_000_000)


def _world() -> World:
    world = World()
    world.serve()
    world.frontend(F)
    world.stub(S)
    return world


def test_an_answer_that_is_read_after_the_word_of_the_death_is_delivered() -> None:
    world = _world()
    world.infer(F, request(5))

    assert world.core.part(S)
    world.finish(S)
    world.gone(S)

    assert [0] == [reply.code for reply in world.replies[F, 5]]


def test_the_dying_are_given_nothing_more() -> None:
    world = _world()
    world.infer(F, request(5))

    world.core.part(S)
    world.infer(F, request(6))
    world.finish(S)
    assert not world.works[S]
    world.gone(S)
    world.stub(S2)

    assert [6] == [work.id for work in world.works[S2]]


def test_a_process_that_answers_nothing_is_not_waited_for() -> None:
    world = _world()

    assert not world.core.part(F)
