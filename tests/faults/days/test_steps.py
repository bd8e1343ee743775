"""The steps of a day are those of its seed."""

from __future__ import annotations

from tests.faults.days.operations import OPERATIONS
from tests.faults.days.steps import Choice, choose_step

CHOICE = Choice(
    1, "explicit", ["kill broker", "kill stub"], ["stop stub"], sorted(OPERATIONS), steering=0.75
)


def test_a_step_is_the_same_whatever_came_before() -> None:
    day = [choose_step(CHOICE, number) for number in range(50)]

    assert day[37] == choose_step(CHOICE, 37)
    assert day != [choose_step(CHOICE._replace(seed=2), number) for number in range(50)]
    assert day != [choose_step(CHOICE._replace(mode="poll"), number) for number in range(50)]


def test_operations_at_once_are_of_different_models() -> None:
    pairs = [
        step.operations
        for step in (choose_step(CHOICE, number) for number in range(500))
        if len(step.operations) == 2
    ]

    assert len(pairs) > 50
    assert [] == [p for p in pairs if OPERATIONS[p[0]].model == OPERATIONS[p[1]].model]


def test_a_day_without_operations_has_faults_alone() -> None:
    calm = [choose_step(CHOICE._replace(operations=[]), number) for number in range(50)]

    assert {(0, 1)} == {(len(step.operations), len(step.faults)) for step in calm}
