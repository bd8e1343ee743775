"""The memory that clients may make a process hold."""

from __future__ import annotations

import random

import pytest

from zmqtriton_frontends.process.allocator import Freed
from zmqtriton_frontends.process.ledger import SMALL_BYTES, Book, Ledger, Share
from zmqtriton_frontends.process.progress import MIN_BYTES, PART, STALL_S, Progress

MIB = 1 << 20


def test_who_is_alone_may_hold_most() -> None:
    book = Book(16 * MIB)
    share = Share(book)

    assert share.take(14 * MIB)
    assert not share.take(1)
    assert Share(book).take(SMALL_BYTES)
    assert not Share(book).take(MIB)
    share.release()
    assert Share(book).take(MIB)


def test_what_is_not_bounded_has_room_for_one() -> None:
    book = Book(16 * MIB, is_bounded=False)
    share = Share(book)

    assert share.take(50 * MIB)
    assert not Share(book).take(1)
    share.release()
    assert Share(book).take(1)


def test_nobody_may_hold_more_than_is_left_for_all_others() -> None:
    book = Book(80 * MIB)
    first, second = Share(book), Share(book)
    assert first.take(20 * MIB)
    assert second.take(20 * MIB)

    assert not second.take(11 * MIB)

    assert (40 * MIB, 1) == (book.held, book.refused)
    assert second.take(10 * MIB)


@pytest.mark.parametrize("clients", [1, 10, 100, 1000])
def test_however_many_take_what_they_get_others_get_a_little(clients: int) -> None:
    book = Book(1024 * MIB)
    greedy = [Share(book) for _ in range(clients)]
    dice = random.Random(1)
    for _ in range(40_000):
        dice.choice(greedy).take(MIB)

    assert book.held <= 1024 * MIB * 7 // 8
    assert all(Share(book).take(SMALL_BYTES) for _ in range(500))


def test_memory_is_given_back_when_much_less_is_held_than_was() -> None:
    given_back: list[int] = []
    ledger = Ledger(1024 * MIB, give_back=lambda: given_back.append(1), freed=Freed())
    share = Share(ledger.requests)
    ledger.check()
    for size in (60 * MIB, 100 * MIB):
        share.add(size)
        ledger.check()
        share.release()
        ledger.check()
        ledger.check()

    assert [1] == given_back


def test_who_moves_enough_of_what_is_held_is_waited_for() -> None:
    progress, done = Progress(), 0
    for step in range(20):
        assert not progress.is_stalled(step * (STALL_S - 1), "reading", done, 64 * MIB)
        done += 64 * MIB // PART


@pytest.mark.parametrize(("held", "moved"), [(0, MIN_BYTES - 1), (64 * MIB, MIB)])
def test_who_moves_too_little_is_stalled(held: int, moved: int) -> None:
    progress = Progress()
    assert not progress.is_stalled(0.0, "reading", 0, held)
    assert not progress.is_stalled(STALL_S - 1, "reading", moved, held)

    assert progress.is_stalled(STALL_S + 1, "reading", moved, held)


def test_another_thing_begins_anew_and_nothing_never_stalls() -> None:
    progress = Progress()
    assert not progress.is_stalled(0.0, "reading", 0, 0)
    assert not progress.is_stalled(STALL_S + 1, "sending", 0, 0)
    assert not progress.is_stalled(3 * STALL_S, "", 0, 0)
    assert not progress.is_stalled(9 * STALL_S, "", 0, 0)
