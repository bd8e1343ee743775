"""zmqtriton answers every case as real Triton did when it was recorded.

A case that differs on purpose stands in docs/recorded-differences.md, and its answer in
recorded/intended.json; one that differs because something is missing stands in pending.txt.
`make conformance-record` asks Triton anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import lists
from tests.conformance.cases import Case
from tests.conformance.newer_pythons import as_of_all
from tests.conformance.play import NO_ANSWER, Target
from tests.conformance.tables import REPOSITORIES, TABLES
from tests.conformance.zmqtriton_target import ours

pytestmark = pytest.mark.system

RECORDED = {name: answer for table in TABLES for name, answer in lists.recorded(table).items()}
INTENDED = lists.intended()
DIFFERING = frozenset(lists.differing())
PENDING = frozenset(lists.pending())


@pytest.fixture(scope="module")
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    """The server over a repository."""
    directory: Path = tmp_path_factory.mktemp(f"conformance_{request.param}")
    with ours(REPOSITORIES[request.param], directory) as target:
        yield target


# A test for each repository, not for each case or table: the server is started once, and what is
# looked for after each test costs more than all cases of a table.
@pytest.mark.parametrize("target", list(REPOSITORIES), indirect=True)
def test_the_answers_are_tritons(target: Target, request: pytest.FixtureRequest) -> None:
    repository = request.node.callspec.params["target"]
    tables = [table for table in TABLES.values() if table.REPOSITORY == repository]

    complaints = [played(target, case) for table in tables for case in table.CASES]

    assert [] == [text for text in complaints if text]


def played(target: Target, case: Case) -> str:
    """Return what is wrong, each time."""
    text = complaint(case, target.play(case))
    for _ in range(4 if case.is_timed else 0):
        text = text and complaint(case, target.play(case))
    return text


def complaint(case: Case, answers: list[Any]) -> str:
    """Return what is wrong with the answers to a case; nothing if they are as they should be."""
    answer, triton = written(answers), written(RECORDED[case.name])
    # To hang or to die is never the right answer, whoever else does.
    is_tritons = triton == answer and NO_ANSWER not in answer
    if is_tritons and case.name in DIFFERING:
        return f"{case.name}: take it out of docs/recorded-differences.md, it no longer differs"
    if is_tritons and case.name in PENDING:
        return f"{case.name}: take it out of pending.txt, it no longer differs"
    if is_tritons or case.name in PENDING:
        return ""
    expected = written(INTENDED[case.name]) if case.name in DIFFERING else triton
    if expected == answer and NO_ANSWER not in answer:
        return ""
    return f"{case.name}: expected {expected}, got {answer}"


def written(answers: Any) -> str:
    """As text, which tells 1 from 1.0 and one order of keys from another."""
    return as_of_all(json.dumps(answers, ensure_ascii=False))
