"""The tables hold what they promise: names once, answers for all, enough of them errors."""

from __future__ import annotations

import re

from tests.conformance import lists
from tests.conformance.play import has_error
from tests.conformance.tables import REPOSITORIES, TABLES

NAMES = [case.name for table in TABLES.values() for case in table.CASES]
#: Of all cases; what goes right is tested in many places, what goes wrong in few.
ERRORS_PERCENT = 40


def test_every_case_has_a_name_of_its_own_and_a_row() -> None:
    assert len(NAMES) == len(set(NAMES))
    assert [] == [name for name in NAMES if not re.fullmatch(r"\w+", name)]
    for table in TABLES.values():
        assert table.REPOSITORY in REPOSITORIES
        assert [] == [case.name for case in table.CASES if not re.fullmatch(r"[A-Z]\d\d", case.row)]


def test_every_case_was_asked_of_triton_and_no_other_answer_is_kept() -> None:
    for name, table in TABLES.items():
        assert [case.name for case in table.CASES] == list(lists.recorded(name))


def test_enough_cases_are_errors() -> None:
    answers = [answer for table in TABLES for answer in lists.recorded(table).values()]

    assert sum(has_error(answer) for answer in answers) * 100 >= ERRORS_PERCENT * len(answers)


def test_the_lists_of_what_differs_name_cases_once() -> None:
    differing, pending = lists.differing(), lists.pending()

    assert [] == [name for name in differing + pending if name not in NAMES]
    assert len(differing + pending) == len({*differing, *pending})


def test_what_differs_on_purpose_is_kept_too() -> None:
    assert sorted(lists.differing()) == list(lists.intended())
