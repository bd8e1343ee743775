"""The memory that clients may make a process hold, and room for what they send."""

from __future__ import annotations

import asyncio
import random
import resource
from collections import deque
from typing import Any

import pytest

from tests.frontends.ledger_client import LedgerClient
from tests.support.scenarios import scenario
from tests.support.shares import share_of
from zmqtriton_frontends.grpc_api.inference.response import copy_some
from zmqtriton_frontends.process.arrivals import Arrivals
from zmqtriton_frontends.process.client_progress import (
    MIN_BYTES,
    PART,
    PAUSE_BYTES,
    PAUSE_S,
    STALL_S,
    ClientProgress,
)
from zmqtriton_frontends.process.ledger import (
    BORROWED_BYTES,
    SMALL_BYTES,
    Book,
    ClientAccount,
    Ledger,
    Share,
)
from zmqtriton_frontends.process.room import STILL_S, Room, max_connections

MIB = 1 << 20


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(16 * MIB)


@pytest.fixture
def progress() -> ClientProgress:
    return ClientProgress()


def test_what_is_not_bounded_has_room_for_one() -> None:
    book = Book(16 * MIB, is_bounded=False)
    share = share_of(book)

    assert share.take(50 * MIB)
    assert not share_of(book).take(1)
    share.release()
    assert share_of(book).take(1)


@pytest.mark.parametrize("clients", [1, 10, 100, 1000])
def test_however_many_take_what_they_get_others_get_a_little(clients: int) -> None:
    book = Book(1024 * MIB)
    greedy = [share_of(book) for _ in range(clients)]
    dice = random.Random(1)
    for _ in range(40_000):
        dice.choice(greedy).take(MIB)

    assert book.held <= 1024 * MIB * 7 // 8
    assert all(share_of(book).take(SMALL_BYTES) for _ in range(500))


def test_who_moves_enough_of_what_is_held_is_waited_for() -> None:
    progress, done = ClientProgress(), 0
    for step in range(20):
        assert not progress.is_stalled(step * (STALL_S - 1), "reading", done, 64 * MIB)
        done += 64 * MIB // PART


@pytest.mark.parametrize(("held", "moved"), [(0, MIN_BYTES - 1), (64 * MIB, MIB)])
def test_who_moves_too_little_is_stalled(progress: ClientProgress, held: int, moved: int) -> None:
    assert not progress.is_stalled(0.0, "reading", 0, held)
    assert not progress.is_stalled(STALL_S - 1, "reading", moved, held)

    assert progress.is_stalled(STALL_S + 1, "reading", moved, held)


@pytest.mark.parametrize(("held", "max_s"), [(PAUSE_BYTES, PAUSE_S), (PAUSE_BYTES + 1, STALL_S)])
def test_a_reader_may_pause_for_longer_while_little_waits_for_it(
    progress: ClientProgress, held: int, max_s: float
) -> None:
    assert not progress.is_paused_too_long(0.0, 0, held)

    assert not progress.is_paused_too_long(max_s - 1, 0, held)
    assert progress.is_paused_too_long(max_s + 1, 0, held)


def test_a_reader_for_which_nothing_waits_is_not_waited_for(progress: ClientProgress) -> None:
    assert not progress.is_paused_too_long(0.0, 0, 0)

    assert not progress.is_paused_too_long(10 * PAUSE_S, 0, 0)


def test_another_thing_begins_anew_and_nothing_never_stalls(progress: ClientProgress) -> None:
    assert not progress.is_stalled(0.0, "reading", 0, 0)
    assert not progress.is_stalled(STALL_S + 1, "sending", 0, 0)
    assert not progress.is_stalled(3 * STALL_S, "", 0, 0)
    assert not progress.is_stalled(9 * STALL_S, "", 0, 0)


def test_requests_and_answers_come_out_of_one_budget(ledger: Ledger) -> None:
    assert share_of(ledger.requests).take(14 * MIB)

    assert not share_of(ledger.answers).take(MIB)
    assert not share_of(ledger.streams).take(MIB)


def test_answers_of_one_client_leave_as_much_for_others() -> None:
    ledger = Ledger(64 * MIB)
    greedy, other = LedgerClient(ledger, "a"), LedgerClient(ledger, "a")
    while greedy.share.take(MIB):
        pass

    assert 28 * MIB == greedy.share.held
    assert other.share.take(4 * MIB)
    greedy.share.release()
    assert 4 * MIB == other.client.address.held


def test_clients_of_one_address_leave_as_much_for_others() -> None:
    ledger = Ledger(64 * MIB)
    assert LedgerClient(ledger, "b").share.take(8 * MIB + 1)
    for _ in range(100):
        one = LedgerClient(ledger, "a")
        while one.share.take(MIB):
            pass

    assert ledger.budget.held <= (8 + 28) * MIB + 1
    assert LedgerClient(ledger, "b").share.take(4 * MIB)


def test_what_is_kept_for_those_who_hold_little_is_no_single_address() -> None:
    ledger = Ledger(64 * MIB)
    for _ in range(1000):
        LedgerClient(ledger, "a").share.take(SMALL_BYTES)

    assert 60 * MIB == ledger.budget.held
    assert LedgerClient(ledger, "b").share.take(SMALL_BYTES)


def test_who_does_not_move_is_ended_where_there_is_no_room_for_others(ledger: Ledger) -> None:
    still, small, moving = (LedgerClient(ledger) for _ in range(3))
    for one, size in ((still, 7), (small, 2), (moving, 2)):
        assert one.share.take(size * MIB)

    for _ in range(2):
        moving.moved += MIB
        assert not LedgerClient(ledger).share.take(8 * MIB)
        ledger.check()

    assert (True, False, False) == (still.is_ended, small.is_ended, moving.is_ended)


@scenario(asyncio.run)
async def test_what_waits_for_room_gets_it_when_others_are_done(ledger: Ledger) -> None:
    first, second = share_of(ledger.requests), share_of(ledger.answers)
    assert first.take(14 * MIB)
    waiting = asyncio.ensure_future(second.wait(4 * MIB))
    await asyncio.sleep(0)
    assert not waiting.done()

    first.release()

    assert await asyncio.wait_for(waiting, 10)
    assert 4 * MIB == ledger.budget.held
    assert not await first.wait(14 * MIB, 0.01)


def test_a_client_that_has_left_leaves_nothing(ledger: Ledger) -> None:
    for one in [LedgerClient(ledger, "a") for _ in range(3)]:
        one.end()

    # what clients leave would only grow
    assert not ledger._clients
    assert not ledger._addresses


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
