"""The matrix of faults and the tests that notice them: `python -m tools.mutants.matrix`."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from tests.repo.sources import tree_of
from tools.mutants import kills
from tools.mutants.kills import Fault, Kill, KillFile, kill_of
from tools.mutants.live import NeedsImport, codes, exchange
from tools.mutants.matrix import Folder, nobody, others, table
from tools.mutants.mutations import mutations
from tools.mutants.rooms import ROOT

MODULE = "zmqtriton/supervisor/story.py"
TESTS = "tests/supervisor/test_story.py"


def kill(name: str, *noticed_by: str, is_cut: bool = False) -> Kill:
    return Kill(name, "zmqtriton/broker/core.py", 1, name, 3, [*noticed_by], is_cut)


# ------------------------------------------------------------------------ file


def test_a_run_that_was_killed_within_a_line_goes_on_behind_it(tmp_path: Path) -> None:
    file = KillFile(tmp_path / "kills")
    file.append(kill("a", "t.py::test_a"))
    with (tmp_path / "kills").open("a") as cut:
        cut.write('{"name": "b", "pa')

    file.append(kill("c"))

    assert ["a", "c"] == [each.name for each in file.read()]


def test_a_plan_gives_each_fault_its_tests(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    (tmp_path / "seconds.main.json").write_text(json.dumps({"t::a": 0.1, "t::b": 0.1}))
    faults = [
        Fault(mutation, tests)
        for mutation, tests in zip(
            mutations(MODULE, b"def f(a, b):\n    g(a < b)\n"),
            (["t::a"], ["t::b", "t::a"]),
            strict=True,
        )
    ]

    folder.save_plan(faults, 2)
    folder.leave_for_import(faults[0].mutation.name)

    assert [faults[0]._replace(needs_import=True), faults[1]] == [*folder.plan()]
    assert 2 == folder.planned_for


def test_a_fault_that_ends_its_process_is_not_tried_for_ever(tmp_path: Path) -> None:
    faults = ["before", "ends it", "ends it", "ends it"]

    assert [False, False, False, True] == [Folder(tmp_path).begin(fault) for fault in faults]


# ------------------------------------------------------------------------ show


def test_cases_of_one_test_count_as_one() -> None:
    results = [kill("f", "t::a[1]", "t::a[2]"), kill("g", "t::a[1]", "t::b"), kill("h", "t::c")]

    assert {"t::a": ["f"], "t::c": ["h"]} == {
        test: [each.name for each in only] for test, only in kills.alone(results).items()
    }
    assert {"t::a": {"f", "g"}, "t::b": {"g"}, "t::c": {"h"}} == kills.by_test(results)


def test_a_fault_whose_tests_hung_gives_nobody_the_credit_of_being_alone() -> None:
    assert {} == kills.alone([kill("f", "t::a", is_cut=True)])


def test_a_cover_notices_all_that_is_noticed_and_reaches_all_lines() -> None:
    results = [
        kill("f", "t::a", "t::b"),
        kill("g", "t::a", "t::c"),
        kill("h", "t::b", "t::d"),
        kill("i", "t::a"),
    ]

    chosen = kills.cover(results, {"t::a": {"1"}, "t::c": {"1", "2"}})

    assert {"f", "g", "h", "i"} == set().union(*(kills.by_test(results)[test] for test in chosen))
    assert (3, True) == (len(chosen), "t::c" in chosen)


def test_tests_without_news_are_told_apart() -> None:
    results = [kill("f", "t::a", "t::b"), kill("g", "t::c"), kill("h")]
    reaching = Counter({"t::a": 1, "t::b": 2, "t::c": 1})

    words = [row.split() for row in others(results, {"t::a", "t::b", "t::c", "t::d"}, reaching, {})]

    assert {("spare", "t::a"), ("cover", "t::b"), ("unmet", "t::d")} == {
        (row[0], row[-1]) for row in words
    }
    assert ["zmqtriton/broker/core.py:1 h [reached by 3]"] == [*nobody(results)]
    assert ["all", "3", "2", "1", "0"] == [*table(results)][-1].split()


# ------------------------------------------------------------------------ live


def functions(text: str) -> dict[Any, list[FunctionType]]:
    """Return the functions of a module that has this text, by their places."""
    names: dict[str, Any] = {}
    exec(compile(text, "/module.py", "exec"), names)
    values = [*names.values()]
    for value in values[:]:
        values += vars(value).values() if isinstance(value, type) else ()
    members = [(f.__code__, f) for f in values if isinstance(f, FunctionType)]
    return {(code.co_filename, code.co_name, code.co_firstlineno): [f] for code, f in members}


TEXT = textwrap.dedent("""
    class A:
        def f(self, a, b):
            str(
                a,
            )
            return [c for c in (a, b) if c > 1]

        def g(self):
            return super().__hash__()

    def f(a):
        return a + 1
""")


@pytest.mark.parametrize(
    ("change", "first", "result"), [("c > 1 -> c >= 1", 0, [1]), ("a + 1 -> a - 1", 1, 0)]
)
def test_a_function_that_is_imported_gets_the_code_of_the_mutant(
    change: str, first: int, result: object
) -> None:
    functions_at = functions(TEXT)
    source = TEXT.encode()
    mutant = next(m for m in mutations(MODULE, source) if change == f"{m.before} -> {m.after}")

    [function], code = codes(functions_at, "/module.py", source, mutant.apply(source))
    exchange([function], code, [])

    assert result == (function(None, 1, 0) if first == 0 else function(1))


def test_a_mutant_that_is_shorter_changes_its_function_alone() -> None:
    source = TEXT.encode()
    mutant = next(m for m in mutations(MODULE, source) if m.after == "pass")

    [function], code = codes(functions(TEXT), "/module.py", source, mutant.apply(source))

    assert ("f", 3) == (function.__code__.co_name, function.__code__.co_firstlineno)
    assert "str" not in code.co_names


def test_code_that_an_import_runs_needs_an_import() -> None:
    with pytest.raises(NeedsImport):
        codes({}, "/module.py", b"x = 1\n", b"x = 2\n")
    with pytest.raises(NeedsImport):
        codes({}, "/module.py", b"def f():\n  a()\n", b"def f():\n  pass\n")


def test_a_run_notes_which_tests_notice_a_fault_and_repeats_nothing(tmp_path: Path) -> None:
    names = [
        f"{TESTS}::{node.name}"
        for node in tree_of(ROOT / TESTS).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    (tmp_path / "seconds.main.json").write_text(json.dumps(dict.fromkeys(names, 0.1)))
    faults = [Fault(each, names) for each in mutations(MODULE, (ROOT / MODULE).read_bytes())[:3]]
    folder = Folder(tmp_path)
    folder.save_plan(faults, 3)
    KillFile(folder.kills).append(kill_of(faults[0], ["as it was"]))

    environment = {**os.environ, "ZT_MUTANTS_MATRIX": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tools.mutants.live", TESTS]
    subprocess.run(command, env=environment, cwd=ROOT, check=True)

    assert 0 == folder.left()
    kept, *tried = KillFile(folder.kills).read()
    assert ["as it was"] == kept.noticed_by
    assert [fault.mutation.name for fault in faults[1:]] == [each.name for each in tried]
    noticed = {test for each in tried for test in each.noticed_by}
    assert noticed
    assert noticed <= {*names}
    assert set() == folder.unsound()
