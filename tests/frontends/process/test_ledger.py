"""The memory that clients may make a process hold."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.frontends.ledger_client import LedgerClient
from tests.support.scenarios import scenario
from tests.support.shares import share_of
from zmqtriton_frontends.process.client_progress import (
    MIN_BYTES,
    PART,
    PAUSE_BYTES,
    PAUSE_S,
    STALL_S,
    ClientProgress,
)
from zmqtriton_frontends.process.ledger import SMALL_BYTES, Book, Ledger

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
