"""Reports of frontends about compared answers."""

from __future__ import annotations

import pytest

from zmqtriton_extras.canaries.canary import RESULTS, Comparisons

pytestmark = pytest.mark.row("L16")


def test_counts_are_added_up_and_what_is_none_is_ignored() -> None:
    comparisons = Comparisons()

    comparisons.add({"equal": 2, "different": 1})
    comparisons.add({"equal": 3, "failed": -1, "skipped": "many", "other": 5, "differences": 7})

    described = comparisons.describe()
    assert {result: described[result] for result in RESULTS} == {
        "equal": 5,
        "different": 1,
        "failed": 0,
        "skipped": 0,
    }
    assert described["differences"] == []


def test_requests_of_models_are_skipped_ones_whatever_becomes_of_the_broker() -> None:
    comparisons = Comparisons()
    comparisons.add({"skipped": 2})

    new = [dict(comparisons.add_uncopied(total)) for total in (0, 5, 5, 7, 1)]

    assert new == [{}, {"skipped": 5}, {}, {"skipped": 2}, {"skipped": 1}]
    described = comparisons.describe()
    assert (described["skipped"], described["uncopied"]) == (10, 8)


def test_the_last_differences_are_kept_each_once_and_fit_for_a_terminal() -> None:
    comparisons = Comparisons()

    comparisons.add({"differences": ["a", "b", "a"]})
    comparisons.add({"differences": ["\x1b[2J\n", "x" * 1000, *"cdefgh"]})

    assert list("defgh") == comparisons.describe()["differences"]
    comparisons.add({"differences": ["\x1b[2J\nz"]})
    assert comparisons.describe()["differences"][-1] == "\\u001b[2J\\nz"
