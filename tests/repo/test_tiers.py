"""The mark `long` names tests of the first tier that show the same behaviour."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.conformance.test_replay import OF_ONE_FEATURE
from tests.repo.sources import nodes_of, parsed, tree_of
from tests.repo.test_conformance_table import PAGE, marked_in, recorded_cases, rows
from tests.repo.test_tables_of_pages import PAGES, named_tests
from tests.session import tiers
from tests.support.needs import ROOT, files_of_tests, mark_of

TESTS = ROOT / "tests"
MARK = "pytest.mark.long"


def held_by(tree: ast.Module) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Return the line of each use of the mark, and the tests or the tool that it names."""
    calls = {}
    for node in nodes_of(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == MARK:
            calls[node.func] = node
    for node in nodes_of(tree):
        if isinstance(node, ast.Attribute) and node.attr == "long" and ast.unparse(node) == MARK:
            call = calls.get(node)
            values = [*call.args, *(keyword.value for keyword in call.keywords)] if call else ()
            yield node.lineno, tuple(map(ast.literal_eval, values))


def long_tests(tree: ast.Module) -> set[str]:
    """Return the functions that are long in all their cases."""
    return {
        node.name
        for node in nodes_of(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == MARK
    }


def first_tier() -> set[str]:
    """Return the tests, and the cases that real Triton has answered, that `make test` has."""
    tests = {
        f"{mark_of(path)}::{name}"
        for path in files_of_tests()
        if tiers.LONG not in tiers.file_marks(path)
        for name in marked_in(path).keys() - _long_in(path)
    }
    return tests | recorded_cases(but={str(case.values[0]) for case in OF_ONE_FEATURE}).keys()


def _long_in(path: Path) -> set[str]:
    return long_tests(tree_of(path)) if MARK in path.read_text("utf-8") else set()


def test_each_long_test_names_others_of_the_first_tier() -> None:
    known = first_tier() | {str(path.relative_to(ROOT)) for path in (TESTS / "bench").glob("*.py")}

    faults = [
        f"{path.relative_to(ROOT)}:{line}: no test {missing or ''}"
        for path in files_of_tests()
        if MARK in path.read_text("utf-8")
        for line, names in held_by(tree_of(path))
        for missing in [set(names) - known]
        if missing or not names
    ]

    assert [] == faults


def test_each_row_that_is_done_has_a_test_in_the_first_tier() -> None:
    first = first_tier()

    assert [] == [
        row.id
        for row in rows(PAGE.read_text("utf-8"))
        if row.state == "done" and not first & set(row.tests)
    ]


def test_each_promise_of_the_other_tables_has_one_too() -> None:
    first = first_tier()

    assert [] == [
        f"{page}: {id}"
        for page, *_ in PAGES
        for id, tests in named_tests((PAGE.parent / page).read_text("utf-8")).items()
        if not first & {f"{file}::{test}" for file, test in tests}
    ]


def test_uses_of_the_mark_are_found() -> None:
    tree = parsed(
        'pytestmark = [pytest.mark.system, pytest.mark.long("a.py::test_a", "b.py::test_b")]\n'
        "@pytest.mark.long\n"
        "def test_bare(): ...\n"
        '@pytest.mark.long("c.py::test_c")\n'
        "def test_long(): ...\n"
        '@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.long("d.py::test_d"))])\n'
        "def test_some(n): ...\n"
    )

    assert [
        (1, ("a.py::test_a", "b.py::test_b")),
        (2, ()),
        (4, ("c.py::test_c",)),
        (6, ("d.py::test_d",)),
    ] == sorted(held_by(tree))
    assert {"test_long"} == long_tests(tree)
