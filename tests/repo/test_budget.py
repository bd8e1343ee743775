"""Budgets of statements: what is carried must be worth carrying.

A budget falls: what a new ability needs is paid for by what leaves, and a budget that is no longer
needed is lowered to what is there. It rises for two things alone: a law that the core keeps in
place of each room, as that of clients' documents, and tests of faults that were found. Core and
standard have one: what moves from one to the other saves nothing. Extras are a second plot with a
budget of their own. Statements are counted in the syntax trees, without docstrings, so that longer
lines save nothing; `make report` prints them.
"""

from __future__ import annotations

import ast

import pytest

from tools.report import packages, sizes, statements

CARRIED = ("zmqtriton", "zmqtriton/embedded", "stub", "frontends", "standard")

#: Of what every server has, and of extras, each with its tests.
STATEMENTS = {
    "core and standard": 57_358,
    "tests": 75_502,
    "extras": 32_394,
    "tests of extras": 31_168,
}
#: The modules of core and standard.
FILES = 624
#: So far above what is there a budget may stand.
SLACK = 100


def _counts() -> dict[str, int]:
    rooms = packages()
    extras = [name for name in rooms if name.startswith("extras/")]
    of_tests = [name for name in extras if name.endswith("/tests")]
    plots = (CARRIED, ["tests"], {*extras} - {*of_tests}, of_tests)
    return {
        name: sum(sizes(rooms[room]).statements for room in plot)
        for name, plot in zip(STATEMENTS, plots, strict=True)
    }


def _faults(counts: dict[str, int], budgets: dict[str, int]) -> list[str]:
    return [
        f"{name} has {count} statements, {budgets[name]} are its budget: "
        f"{'take something out' if count > budgets[name] else 'lower it'}"
        for name, count in counts.items()
        if not budgets[name] - SLACK <= count <= budgets[name]
    ]


def test_what_is_carried_does_not_grow() -> None:
    assert [] == _faults(_counts(), STATEMENTS)


def test_the_number_of_modules_does_not_grow() -> None:
    count = sum(len(paths) for name, paths in packages().items() if name in CARRIED)

    assert FILES - SLACK <= count <= FILES


@pytest.mark.parametrize(("count", "advice"), [(501, "take something out"), (399, "lower it")])
def test_a_budget_is_held_from_both_sides(count: int, advice: str) -> None:
    [fault] = _faults({"core": count}, {"core": 500})

    assert advice in fault


def test_longer_lines_and_docstrings_do_not_count() -> None:
    text = 'def f():\n    """Say why."""\n    a = 1; b = 2\n    return (\n        a + b\n    )\n'

    assert 4 == statements(ast.walk(ast.parse(text)))
