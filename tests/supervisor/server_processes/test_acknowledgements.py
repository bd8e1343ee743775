"""The processes that have taken note of what was sent, and the calls that wait for them."""

from __future__ import annotations

import pytest

from zmqtriton.supervisor.actions import Log, Send
from zmqtriton.supervisor.plan import Plan
from zmqtriton.supervisor.server_processes.acknowledgements import (
    ACKNOWLEDGEMENT_TIMEOUT_S,
    Acknowledgements,
)
from zmqtriton_floor import wire


class World:
    def __init__(self) -> None:
        self.plan = Plan()
        self.acknowledgements = Acknowledgements(self.plan)
        self.done: list[str] = []

    def sync(self, name: str, *peers: int) -> None:
        self.acknowledgements.sync(peers, lambda: self.done.append(name))

    def probe(self, name: str, peer: int) -> None:
        self.acknowledgements.probe(peer, lambda: self.done.append(name))

    def asked(self) -> list[tuple[int, int]]:
        """Return the processes that were asked since the last call, with the numbers."""
        actions = self.plan.take_actions()
        return [
            (action.serial, action.message.number)
            for action in actions
            if isinstance(action, Send) and isinstance(action.message, wire.Sync)
        ]


@pytest.fixture
def world() -> World:
    return World()


def test_where_there_is_nobody_to_ask_it_is_done_at_once(world: World) -> None:
    world.sync("nobody")

    assert (["nobody"], []) == (world.done, world.asked())


def test_all_have_to_answer(world: World) -> None:
    world.sync("both", 5, 4)
    [(first, number), (second, same)] = world.asked()
    assert (4, 5, number) == (first, second, same)

    world.acknowledgements.acknowledge(4, number)
    world.acknowledgements.acknowledge(9, number)
    assert [] == world.done

    world.acknowledgements.acknowledge(5, number)
    assert ["both"] == world.done
    assert world.plan.next_deadline_s() is None


def test_an_answer_covers_earlier_questions_and_no_later_ones(world: World) -> None:
    for name in ("first", "second", "third"):
        world.sync(name, 4)
    numbers = [number for _, number in world.asked()]

    world.acknowledgements.acknowledge(4, numbers[1])

    assert ["first", "second"] == world.done


def test_a_process_that_ends_is_not_waited_for(world: World) -> None:
    world.sync("both", 4, 5)
    world.sync("other", 5)
    [(_, number), *_] = world.asked()
    world.acknowledgements.acknowledge(5, number)

    world.acknowledgements.peer_ended(4)
    world.acknowledgements.peer_ended(4)

    assert ["both"] == world.done


def test_one_that_stays_silent_is_not_waited_for_for_ever(world: World) -> None:
    world.sync("both", 4, 5)
    [(_, number), _] = world.asked()
    world.acknowledgements.acknowledge(4, number)

    world.plan.advance_to(ACKNOWLEDGEMENT_TIMEOUT_S - 0.1)
    assert [] == world.done
    world.plan.advance_to(ACKNOWLEDGEMENT_TIMEOUT_S)

    assert ["both"] == world.done
    [warning] = [one for one in world.plan.take_actions() if isinstance(one, Log)]
    assert "processes 5 have not confirmed" in warning.text
    world.acknowledgements.acknowledge(5, number)
    assert ["both"] == world.done


def test_another_process_is_asked_in_place_of_a_dead_one(world: World) -> None:
    world.sync("first", 4)
    world.sync("other", 5)
    [(_, number), _] = world.asked()

    world.acknowledgements.transfer(4, 6)
    world.acknowledgements.peer_ended(4)

    assert ([(6, number)], []) == (world.asked(), world.done)
    world.acknowledgements.acknowledge(6, number)
    assert ["first"] == world.done


def test_a_process_is_asked_again_once_it_has_answered(world: World) -> None:
    world.probe("first", 4)
    world.probe("never", 4)
    [(_, number)] = world.asked()

    for peer, other in ((5, number), (4, number - 1)):
        world.acknowledgements.acknowledge(peer, other)
    assert [] == world.done
    world.acknowledgements.acknowledge(4, number)
    assert ["first"] == world.done

    world.probe("second", 4)
    [(_, number)] = world.asked()
    world.probe("another", 5)
    assert 1 == len(world.asked())
    world.acknowledgements.acknowledge(4, number)
    assert ["first"] == world.done, "the one in its place is asked"
