"""Room for what clients send."""

from __future__ import annotations

import random
import resource
from collections import deque
from typing import Any

from tests.frontends.ledger_client import LedgerClient
from tests.support.shares import share_of
from zmqtriton_frontends.grpc_api.inference.response import copy_some
from zmqtriton_frontends.process.arrivals import Arrivals
from zmqtriton_frontends.process.ledger import BORROWED_BYTES, ClientAccount, Ledger, Share
from zmqtriton_frontends.process.room import STILL_S, Room, max_connections

# -------------------------------------------------------------------------------- room


class Visitor(LedgerClient):
    """A connection of which the test says how it goes on."""

    def __init__(
        self, ledger: Ledger, place: str, *, is_idle: bool = False, was_answered: bool = True
    ) -> None:
        super().__init__(ledger, place)
        self.is_idle = is_idle
        self.answered_at = 1.0 if was_answered else 0.0


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


def test_connections_leave_descriptors_for_everything_else() -> None:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)

    assert 0 < max_connections() < limit


def test_the_oldest_idle_one_makes_room_at_once() -> None:
    house = House(2)
    first, _ = house.add(is_idle=True), house.add(is_idle=True)

    assert [first] == house.room.take_still()


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


# ---------------------------------------------------------------------------- arrivals
# The room of what has come for streams.


MIB = 1 << 20


def _come(arrivals: Arrivals, size: int) -> bool:
    arrivals.unread += size
    return arrivals.unread <= arrivals.room or arrivals.admit()


def test_an_address_borrows_half() -> None:
    ledger = Ledger(16 * MIB)
    first, second, third = (ClientAccount(ledger, place) for place in ("a", "a", "b"))
    share_of(ledger.answers).add(16 * MIB)
    half = BORROWED_BYTES // 2

    assert _come(Arrivals(Share(ledger.answers, first)), half)
    assert not _come(Arrivals(Share(ledger.answers, second)), MIB)
    assert _come(Arrivals(Share(ledger.answers, third)), half)


def test_without_a_share_there_is_room_for_everything() -> None:
    arrivals = Arrivals()

    assert _come(arrivals, 1 << 40)
    arrivals.delivered = 1 << 40
    assert not arrivals.pass_on()
    arrivals.take()
    arrivals.release()

    assert (0, 0) == (arrivals.unread, arrivals.held)


def test_the_accounts_agree_whatever_comes_and_goes() -> None:
    ledger = Ledger(32 * MIB)
    numbers = random.Random(5)
    all_of_them = [Arrivals(Share(ledger.answers, ClientAccount(ledger, str(n)))) for n in range(8)]

    for _ in range(5000):
        arrivals = numbers.choice(all_of_them)
        action = numbers.randrange(5)
        if action < 2:
            _come(arrivals, numbers.choice([100, 50_000, 3 * MIB]))
        elif action == 2:
            arrivals.delivered = min(arrivals.unread, numbers.choice([100, 50_000, 3 * MIB]))
        elif action == 3:
            numbers.choice([arrivals.take, arrivals.pass_on])()
        elif not numbers.randrange(10):
            arrivals.release()
        assert sum(one.held for one in all_of_them) == ledger.budget.held + ledger.budget.borrowed
        assert ledger.budget.borrowed <= BORROWED_BYTES
        assert ledger.budget.held <= ledger.budget.limit

    for arrivals in all_of_them:
        arrivals.release()
    assert (0, 0) == (ledger.budget.held, ledger.budget.borrowed)


# -------------------------------------------------------------------------- kept parts


_STEP_BYTES = 1 << 20


def test_what_is_our_own_is_not_copied() -> None:
    parts: list[Any] = [b"a", memoryview(b"b")]

    assert not copy_some(parts)
    assert [b"a", b"b"] == parts


def test_a_step_copies_no_more_than_a_mebibyte() -> None:
    other = bytearray(random.Random(1).randbytes(5 * _STEP_BYTES // 2))
    parts: Any = deque((memoryview(b"head"), memoryview(other), memoryview(b"tail")))

    steps = 0
    while copy_some(parts):
        steps += 1
        left = sum(len(part) for part in parts if part.obj is other)
        assert max(0, len(other) - steps * _STEP_BYTES) == left

    assert 3 == steps
    assert b"head" + other + b"tail" == b"".join(parts)


def test_what_is_sent_between_two_steps_is_sent_once() -> None:
    other = bytearray(random.Random(2).randbytes(3 * _STEP_BYTES))
    parts: Any = deque((memoryview(other),))
    sent = bytearray()

    while copy_some(parts):
        sent += parts.popleft()

    assert other == sent + b"".join(parts)
