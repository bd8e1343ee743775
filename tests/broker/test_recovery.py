"""A broker that follows another: nothing is executed twice, and nothing plain is lost."""

from __future__ import annotations

import pytest

from tests.broker.world import TOKEN, World, request
from zmqtriton_floor import wire
from zmqtriton_floor.errors import Unavailable

F, S, S2 = 1, 2, 3


@pytest.fixture
def world() -> World:
    """The supervisor has told the new broker of two stubs; they have not said hello yet."""
    world = World()
    world.serve()
    world.frontend(F)
    for serial in (S, S2):
        world.core.expect(wire.Expect(serial, TOKEN, "stub", f"m_{serial}", 0))
        world.core.attach(wire.Attach(1, serial, f"m_{serial}"), world.now)
    return world


def _resend(world: World, *ids: int) -> None:
    world.infer(F, *(request(i, flags=wire.RESENT) for i in ids))


def _hello(
    world: World, serial: int, received: tuple[int, ...] = (), answered: tuple[int, ...] = ()
) -> None:
    hello = wire.Hello(
        serial,
        TOKEN,
        2,
        [wire.Route(F, i) for i in received],
        [wire.Outcome(F, i, 0, "", wire.FINAL) for i in answered],
    )
    world.core.connected(hello, [b"body"] * len(answered), world.now)
    world.take()


def test_a_resent_request_waits_until_all_stubs_have_said_hello(world: World) -> None:
    _resend(world, 1)
    _hello(world, S)
    assert not world.works

    _hello(world, S2)

    assert [1] == [w.id for works in world.works.values() for w in works]


def test_a_new_request_does_not_wait(world: World) -> None:
    _resend(world, 1)
    world.infer(F, request(2))

    _hello(world, S)

    assert [2] == [w.id for w in world.works[S]]


def test_what_a_stub_has_received_is_awaited_and_not_executed_again(world: World) -> None:
    _resend(world, 1)
    _hello(world, S, received=(1,))
    _hello(world, S2)
    assert not world.works

    late = wire.Results([wire.Outcome(F, 1, 0, "", wire.FINAL)], [])
    world.core.results(S, late, [b"body"], world.now)
    world.take()

    assert 1 == len(world.finals(F, 1))
    assert 0 == world.core.malformed


def test_a_stub_that_is_still_executing_gets_nothing_until_that_is_over(world: World) -> None:
    hello = wire.Hello(S, TOKEN, 2, [wire.Route(F, 1)], is_executing=1)
    world.core.connected(hello, [], world.now)
    _hello(world, S2, received=(9,))
    world.gone(S2)
    world.infer(F, request(2))
    assert not world.works

    # Under the number that its first broker had given it.
    world.core.results(S, wire.Results([], [wire.Executed(77, 1, 1, 1)]), [], world.now)
    world.take()

    assert [2] == [w.id for w in world.works[S]]
    assert 0 == world.core.malformed


def test_what_a_stub_has_answered_is_passed_on(world: World) -> None:
    _resend(world, 1)
    _hello(world, S, answered=(1,))
    _hello(world, S2)

    assert [0] == [r.code for r in world.finals(F, 1)]
    assert not world.works


def test_an_answer_may_come_before_its_asker_asks_again(world: World) -> None:
    _hello(world, S, received=(1,))
    _hello(world, S2)
    late = wire.Results([wire.Outcome(F, 1, 0, "", wire.FINAL)], [])
    world.core.results(S, late, [b"body"], world.now)
    world.take()

    _resend(world, 1)

    assert [0] == [r.code for r in world.finals(F, 1)]
    assert not world.works


def test_what_a_stub_had_that_died_without_a_hello_is_not_executed_again(world: World) -> None:
    _resend(world, 1)
    _hello(world, S)

    world.gone(S2)

    assert [Unavailable.number] == [r.code for r in world.finals(F, 1)]
    assert not world.works


def test_a_stub_that_has_a_resent_request_and_dies_fails_it(world: World) -> None:
    _resend(world, 1)
    _hello(world, S, received=(1,))
    _hello(world, S2)

    world.gone(S)

    assert [Unavailable.number] == [r.code for r in world.finals(F, 1)]


def test_a_waiting_request_can_be_cancelled_and_expire(world: World) -> None:
    _resend(world, 1)
    world.infer(F, request(2, flags=wire.RESENT, deadline_ns=world.now + 10))

    world.cancel(F, 1)
    world.tick(10)
    _hello(world, S)
    _hello(world, S2)

    assert [1, 1] == [len(world.finals(F, i)) for i in (1, 2)]
    assert not world.works
    assert 0 == world.core.unanswered
    assert 0 == world.core.generations[1].pending


def test_responses_of_a_stream_wait_in_order_for_their_asker(world: World) -> None:
    _hello(world, S, received=(1,))
    _hello(world, S2)
    for number, flags in ((3, 0), (4, 0)):
        said = wire.Results([wire.Outcome(F, 1, 0, "", flags, number)], [])
        world.core.results(S, said, [b"body"], world.now)

    _resend(world, 1)
    last = wire.Results([wire.Outcome(F, 1, 0, "", wire.FINAL, 5)], [])
    world.core.results(S, last, [b"body"], world.now)
    world.take()

    assert [3, 4, 5] == [r.number for r in world.replies[F, 1]]
    assert 0 == world.core.unanswered
