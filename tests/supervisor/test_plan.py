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
