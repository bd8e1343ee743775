from __future__ import annotations

import logging

import pytest

from zmqtriton.supervisor.machine.guard import guarded
from zmqtriton.supervisor.plan import Plan


def test_a_timer_that_raises_keeps_none_of_the_others_of_its_moment_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plan = Plan()
    called: list[str] = []
    plan.call_later(1, lambda: called.append("first"))
    plan.call_later(1, lambda: [][1])
    plan.call_later(1, lambda: called.append("last"))

    with caplog.at_level(logging.ERROR):
        plan.advance_to(1, guarded)

    assert ["first", "last"] == called
    assert ["a timer has failed"] == [record.getMessage() for record in caplog.records]
    assert plan.next_deadline_s() is None


def test_timers_are_due_in_their_order_and_not_before_their_time() -> None:
    plan = Plan(10.0)
    called: list[str] = []
    plan.call_later(2, lambda: called.append("late"))
    plan.call_later(1, lambda: called.append("soon"))
    assert 11.0 == plan.next_deadline_s()

    plan.advance_to(10.9)
    assert [] == called

    plan.advance_to(11.0)
    assert (["soon"], 12.0) == (called, plan.next_deadline_s())

    plan.advance_to(9.0)
    assert 11.0 == plan.now_s, "time does not go back"

    plan.advance_to(20.0)
    assert (["soon", "late"], None) == (called, plan.next_deadline_s())


def test_a_cancelled_timer_is_neither_called_nor_waited_for() -> None:
    plan = Plan()
    called: list[str] = []
    first = plan.call_later(1, lambda: called.append("first"))
    second = plan.call_later(2, lambda: called.append("second"))
    plan.call_later(3, lambda: called.append("third"))

    second.cancel()
    first.cancel()

    assert 3.0 == plan.next_deadline_s()
    plan.advance_to(3)
    assert ["third"] == called


def test_an_answer_is_taken_once_by_the_call_that_expects_it() -> None:
    plan = Plan()
    answers: list[str] = []
    asked, forgotten = plan.expect(answers.append), plan.expect(answers.append)
    assert asked != forgotten

    plan.forget(forgotten)
    for ticket in (forgotten, asked, asked, 99):
        plan.answer(ticket, f"to {ticket}")

    assert [f"to {asked}"] == answers
    plan.forget(99)
