from __future__ import annotations

import pytest

from zmqtriton_floor import wire
from zmqtriton_stub.broker import unconfirmed_answers
from zmqtriton_stub.broker.unconfirmed_answers import (
    MAX_BODY_BYTES,
    MAX_BYTES,
    SETTLED_NS,
    UnconfirmedAnswers,
)

pytestmark = pytest.mark.slow


class Clock:
    now_ns = 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(unconfirmed_answers, "_now_ns", lambda: clock.now_ns)
    return clock


def outcome(own_id: int, text: str = "") -> wire.Outcome:
    return wire.Outcome(3, own_id, 2 if text else 0, text, wire.FINAL)


def test_answers_are_recalled_oldest_first_with_their_bodies(clock: Clock) -> None:
    kept = UnconfirmedAnswers()
    kept.add(outcome(1), b"one")
    kept.add(outcome(2, "no"), b"")

    assert kept.recall() == ([outcome(1), outcome(2, "no")], [b"one", b""])


def test_an_answer_is_forgotten_when_the_broker_has_outlived_it_by_a_second(clock: Clock) -> None:
    kept = UnconfirmedAnswers()
    kept.add(outcome(1), b"one")
    clock.now_ns = 10
    kept.add(outcome(2), b"two")

    kept.note_message(SETTLED_NS + 10)

    assert kept.recall() == ([outcome(2)], [b"two"])


def test_an_answer_stays_however_old_while_the_broker_says_nothing(clock: Clock) -> None:
    kept = UnconfirmedAnswers()
    kept.add(outcome(1), b"one")

    clock.now_ns = 3600 * SETTLED_NS

    assert kept.recall() == ([outcome(1)], [b"one"])


def test_what_the_next_broker_was_told_stays_until_that_one_has_outlived_it(clock: Clock) -> None:
    kept = UnconfirmedAnswers()
    kept.add(outcome(1), b"one")
    clock.now_ns = 10 * SETTLED_NS
    kept.recall()

    kept.note_message(10 * SETTLED_NS)
    assert len(kept.kept) == 1
    kept.note_message(11 * SETTLED_NS + 1)
    assert len(kept.kept) == 0


def test_of_a_large_body_only_the_fact_stays(clock: Clock) -> None:
    kept = UnconfirmedAnswers()
    kept.add(outcome(1), bytes(MAX_BODY_BYTES + 1))
    kept.add(outcome(2), bytes(MAX_BODY_BYTES))

    [lost, whole], bodies = kept.recall()

    assert (lost.id, lost.flags) == (1, wire.FINAL)
    assert (lost.code, lost.text) == (5, "the answer of the model was lost with the broker")
    assert whole == outcome(2)
    assert bodies == [b"", bytes(MAX_BODY_BYTES)]


def test_of_many_bodies_the_newest_stay(clock: Clock) -> None:
    kept = UnconfirmedAnswers()
    size = MAX_BODY_BYTES
    fitting = MAX_BYTES // size
    for i in range(fitting + 2):
        kept.add(outcome(i), bytes(size))

    outcomes, bodies = kept.recall()

    assert [len(body) for body in bodies] == [0, 0] + [size] * fitting
    assert [o.code != 0 for o in outcomes] == [True, True] + [False] * fitting


def test_forgetting_makes_room_for_bodies_again(clock: Clock) -> None:
    kept = UnconfirmedAnswers()
    for round_number in range(3):
        clock.now_ns = round_number * 10 * SETTLED_NS
        for i in range(MAX_BYTES // MAX_BODY_BYTES):
            kept.add(outcome(i), bytes(MAX_BODY_BYTES))
        assert all(kept.recall()[1])
        kept.note_message(clock.now_ns + SETTLED_NS + 1)
        assert len(kept.kept) == 0


def test_however_much_was_answered_all_of_it_is_told(clock: Clock) -> None:
    kept = UnconfirmedAnswers()
    count = 2 * wire.MAX_ROWS
    for i in range(count):
        kept.add(outcome(i, "é" * (60_000 if i % 100 == 0 else 10)), b"")

    outcomes, bodies = kept.recall()

    assert list(range(count)) == [o.id for o in outcomes]
    assert count == len(bodies)
    assert sum(len(o.text.encode()) for o in outcomes) < wire.MAX_HEADER_BYTES
    assert all(o.text for o in outcomes), "of what does not fit the beginning stays"
