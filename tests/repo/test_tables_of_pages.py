"""docs/security.md, docs/reliability.md and the tests agree: each test that a page names exists."""

from __future__ import annotations

import re

import pytest

from tests.repo.test_conformance_table import PAGE, marked_in
from tests.support.needs import file_of

#: The page, how its ids begin, and how many there are at least.
PAGES = [("security.md", "S-", 50), ("reliability.md", "R-", 30)]


def named_tests(text: str) -> dict[str, list[tuple[str, str]]]:
    """The tests by the id of the row that they belong to."""
    by_row: dict[str, list[tuple[str, str]]] = {}
    for id, names in re.findall(r"^- ([A-Z]-\w+): ((?:`.+`,?\s+)+)", text, re.MULTILINE):
        assert id not in by_row
        by_row[id] = re.findall(r"`([^`]+\.py)::(\w+)`", names)
    return by_row


@pytest.mark.parametrize(("page", "prefix", "least"), PAGES)
def test_every_row_stands_once_with_tests_that_exist(page: str, prefix: str, least: int) -> None:
    text = (PAGE.parent / page).read_text("utf-8")
    lines = [line for line in text.splitlines() if line.startswith(f"| {prefix}")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]

    ids = [row[0] for row in rows]
    assert len(ids) == len(set(ids)) > least
    tests = named_tests(text)
    assert set(tests) <= set(ids)
    for id, *_, last in rows:
        assert tests.get(id) or last == "open", id
        for file, test in tests.get(id, []):
            assert test in marked_in(file_of(file)), (id, test)


def test_every_attack_has_a_promise_and_a_bound() -> None:
    text = (PAGE.parent / "security.md").read_text("utf-8")
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| S-")]

    assert {4} == {len(row) for row in rows}
    assert all(cell.strip() for row in rows for cell in row)
