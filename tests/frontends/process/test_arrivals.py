"""The room of what has come for streams."""

from __future__ import annotations

import random

from zmqtriton_frontends.process.arrivals import FREE_BYTES, Arrivals
from zmqtriton_frontends.process.ledger import BORROWED_BYTES, Client, Ledger, Share

MIB = 1 << 20


def _come(arrivals: Arrivals, size: int) -> bool:
    arrivals.unread += size
    return arrivals.unread <= arrivals.room or arrivals.admit()


def test_room_is_taken_for_what_waits_and_given_back_when_it_is_taken() -> None:
    ledger = Ledger(64 * MIB)
    arrivals = Arrivals(Share(ledger.answers))

    assert _come(arrivals, FREE_BYTES)
    assert 0 == ledger.answers.held
    assert _come(arrivals, 3 * MIB)
    assert 3 * MIB <= ledger.answers.held < 3 * MIB + (64 << 10)
    arrivals.delivered = 3 * MIB
    arrivals.take()

    assert 0 == ledger.answers.held == arrivals.held
    assert FREE_BYTES == arrivals.unread


def test_what_the_reader_accounts_for_itself_is_held_no_longer() -> None:
    ledger = Ledger(64 * MIB)
    arrivals = Arrivals(Share(ledger.answers))
    _come(arrivals, 3 * MIB)
    _come(arrivals, 2 * MIB)

    arrivals.delivered = 3 * MIB
    assert arrivals.pass_on()
    assert 2 * MIB <= ledger.answers.held < 2 * MIB + (64 << 10)
    assert not arrivals.pass_on()
    arrivals.take()

    assert 2 * MIB == arrivals.unread


def test_what_has_no_room_is_borrowed_and_given_back_first() -> None:
    ledger = Ledger(16 * MIB)
    Share(ledger.answers).add(16 * MIB)
    arrivals = Arrivals(Share(ledger.answers))

    assert _come(arrivals, 8 * MIB)
    assert 8 * MIB <= ledger.budget.borrowed
    arrivals.delivered = 8 * MIB

    # so its reader has to wait for room
    assert not arrivals.pass_on()
    assert 0 == ledger.budget.borrowed


def test_one_thing_of_any_size_can_be_borrowed_and_little_else() -> None:
    ledger = Ledger(16 * MIB)
    first, second = (Client(ledger, place) for place in ("a", "b"))
    Share(ledger.answers).add(16 * MIB)

    assert _come(Arrivals(Share(ledger.answers, first)), 2 * BORROWED_BYTES)
    assert not _come(Arrivals(Share(ledger.answers, second)), MIB)


def test_an_address_borrows_half() -> None:
    ledger = Ledger(16 * MIB)
    first, second, third = (Client(ledger, place) for place in ("a", "a", "b"))
    Share(ledger.answers).add(16 * MIB)
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
    all_of_them = [Arrivals(Share(ledger.answers, Client(ledger, str(n)))) for n in range(8)]

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
        held = sum(one.held for one in all_of_them)
        assert held == ledger.budget.held + ledger.budget.borrowed
        assert ledger.budget.borrowed <= BORROWED_BYTES
        assert ledger.budget.held <= ledger.budget.limit

    for arrivals in all_of_them:
        arrivals.release()
    assert (0, 0) == (ledger.budget.held, ledger.budget.borrowed)
