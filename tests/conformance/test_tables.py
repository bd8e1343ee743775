"""The tables hold what they promise, and the same arrivals form the same batches as in real Triton.

Batches: their sizes, how often each was executed, the counters, and the order in which the model
saw the requests.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import batches, lists
from tests.conformance.arrivals import Configuration
from tests.conformance.configurations import CONFIGURATIONS
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


BATCH_NAMES = [each.name for each in CONFIGURATIONS]


@pytest.mark.long(
    "broker/scheduling/test_batching.py::test_a_delay_collects_until_it_has_passed",
    "broker/scheduling/test_batching.py::test_the_largest_preferred_size_that_is_there_is_taken",
    "broker/scheduling/test_queue_policy.py::test_higher_priorities_go_first_and_each_in_the_order_it_came",
    "broker/sequences/test_sequences.py::test_a_batch_of_the_oldest_waits_for_its_preferred_size",
)
@pytest.mark.system
@pytest.mark.row("E60", "E65", "E73")
def test_the_batches_are_tritons(tmp_path: Path) -> None:
    # More than one where Triton's own threads race, or where we differ on purpose.
    allowed = {
        name: [entry["ours"]] if "ours" in entry else entry["triton"]
        for name, entry in batches.recorded().items()
    }

    got: dict[str, Any] = {}

    def differing() -> list[Configuration]:
        return [each for each in CONFIGURATIONS if got.get(each.name) not in allowed[each.name]]

    # Where the machine is busy, requests may come too late for a batch that waits for them.
    for turn in range(4):
        if differing():
            got |= batches.play_ours(tmp_path / str(turn), differing())

    assert {} == {each.name: (allowed[each.name], got[each.name]) for each in differing()}


def test_what_differs_from_triton_is_listed_as_meant() -> None:
    recorded = batches.recorded()

    differing = [name for name in BATCH_NAMES if "ours" in recorded[name]]

    text = lists.DIFFERENCES.with_name("differences.md").read_text("utf-8")
    assert [] == [name for name in differing if f"`{name}`" not in text]
    assert len(differing) * 5 < len(BATCH_NAMES)
    assert set(BATCH_NAMES) == set(recorded)
