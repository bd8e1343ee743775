from __future__ import annotations

import pytest

from zmqtriton_frontends.process.ledger import Client, Ledger
from zmqtriton_frontends.process.room import STILL_S, WAITING_S, Room


class Visitor:
    """A connection of which the test says how it goes on."""

    def __init__(
        self, ledger: Ledger, place: str, *, is_idle: bool = False, was_answered: bool = True
    ) -> None:
        self.moved = 0
        self.owes = True
        self.is_idle = is_idle
        self.answered_at = 1.0 if was_answered else 0.0
        self.client = Client(ledger, place, lambda: self.moved, lambda: self.owes)


class House:
    def __init__(self, limit: int) -> None:
        self.now = 1000.0
        self.ledger = Ledger(1 << 30)
        self.room: Room[Visitor] = Room(limit, lambda: self.now)

    def add(self, place: str = "a", *, is_idle: bool = False, was_answered: bool = True) -> Visitor:
        visitor = Visitor(self.ledger, place, is_idle=is_idle, was_answered=was_answered)
        self.room.add(visitor)
        return visitor

    def wait(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.now += 1
            self.room.check()


def test_who_has_not_gone_on_for_longest_makes_room() -> None:
    house = House(3)
    first, second, third = house.add(), house.add(), house.add()
    house.wait(3)
    first.moved = 5000
    house.wait(STILL_S)
    third.moved = 5000
    house.wait(1)

    assert [second] == house.room.take_still()
    assert not house.room.is_full
    assert [first] == house.room.take_still()
    assert [] == house.room.take_still()


def test_who_has_only_come_has_the_time_to_go_on() -> None:
    house = House(2)
    for _ in range(2):
        house.add()

    house.wait(STILL_S - 1)

    assert [] == house.room.take_still()


def test_bytes_that_trickle_are_no_progress() -> None:
    house = House(1)
    visitor = house.add()
    for _ in range(int(STILL_S)):
        visitor.moved += 1
        house.wait(1)

    assert [visitor] == house.room.take_still()


def test_who_waits_for_the_server_keeps_its_place() -> None:
    house = House(2)
    waiting, slow = house.add(), house.add()
    waiting.owes = False
    house.wait(STILL_S * 10)

    assert [slow] == house.room.take_still()
    assert [] == house.room.take_still()
    house.wait(WAITING_S)
    assert [waiting] == house.room.take_still()


def test_the_oldest_idle_one_makes_room_at_once() -> None:
    house = House(2)
    first, _ = house.add(is_idle=True), house.add(is_idle=True)

    assert [first] == house.room.take_still()


@pytest.mark.parametrize("is_idle", [False, True])
def test_nobody_closes_connections_of_another_address(is_idle: bool) -> None:
    house = House(130)
    others = [house.add("few", is_idle=True) for _ in range(3)]
    many = [house.add("many", is_idle=is_idle) for _ in range(127)]
    house.wait(STILL_S)

    taken = []
    while len(house.room) > 10:
        taken += house.room.take_still()

    assert set(taken) < set(many)
    assert not set(others) & set(taken)


def test_who_asks_nothing_makes_room_before_who_is_served_wherever_they_come_from() -> None:
    house = House(60)
    served = [house.add("proxy", is_idle=True) for _ in range(20)]
    new = [house.add(f"n{number}", was_answered=False) for number in range(40)]

    assert [] == house.room.take_still()  # they have only just come
    house.wait(1)
    taken = [one for _ in new for one in house.room.take_still()]

    assert set(new) == set(taken)
    assert house.room.take_still()[0] in served


def test_a_first_request_that_comes_slowly_or_is_executed_keeps_its_place() -> None:
    house = House(2)
    slow, waiting = house.add(was_answered=False), house.add(was_answered=False)
    waiting.owes = False
    for _ in range(3):
        slow.moved += 2000
        house.wait(1)

    slow.moved += 2000
    assert [] == house.room.take_still()


def test_who_was_answered_lately_keeps_its_place_while_others_come() -> None:
    house = House(100)
    served = house.add(is_idle=True)
    house.wait(STILL_S + 1)  # while there is much room, nobody looks who goes on
    served.answered_at = house.now
    new = [house.add(f"n{number}", was_answered=False) for number in range(99)]

    assert [] == house.room.take_still()
    house.wait(1)
    assert set(house.room.take_still()) < set(new)
