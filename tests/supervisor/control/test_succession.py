"""A server that takes over repeats what the one before was told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zmqtriton.supervisor.actions import AskPredecessor
from zmqtriton.supervisor.control.succession import Succession
from zmqtriton.supervisor.plan import Plan
from zmqtriton_floor.errors import Unsupported


class Leaving:
    def leave_to_successor(self) -> None:
        raise AssertionError("nobody has question for that")


def test_any_number_of_calls_that_are_refused_at_once_ends_in_order() -> None:
    plan, names, ends = Plan(0.0), list[str](), list[bool]()

    def refuse(verb: str, arguments: dict[str, Any], answer: Callable[[Any], None]) -> None:
        names.append(arguments["name"])
        answer(Unsupported("not here"))

    Succession(plan, Leaving(), (), takes_over=True).inherit(refuse, lambda: ends.append(True))
    [question] = [each for each in plan.take_actions() if isinstance(each, AskPredecessor)]
    calls = [("regions.register", {"name": str(number)}) for number in range(2000)]
    plan.answer(question.ticket, calls)
    for moment in range(len(calls) + 1):
        plan.advance_to(float(moment))

    assert [str(number) for number in range(2000)] == names
    assert [True] == ends
