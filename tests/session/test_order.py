"""The order of tests, their tiers and programs, and the command that tests the core alone."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.session import order, tiers
from tests.support import needs
from tools import alone, core_alone

# ------------------------------------------------------------------------------- order
# The order of the tests that a seed decides.


NODES = [f"tests/{file}.py::test_{number}" for file in "abcde" for number in range(5)]


def ordered(nodes: list[str], seed: str) -> list[str]:
    config: Any = SimpleNamespace(getoption={"--order-seed": seed}.get)
    items: Any = [SimpleNamespace(nodeid=node) for node in nodes]
    order.pytest_collection_modifyitems(config, items)
    return [item.nodeid for item in items]


def test_seeds_decide_the_order_of_files_and_of_tests_within_a_file() -> None:
    orders = [ordered(NODES, seed) for seed in ("1", "2")]

    for nodes in orders:
        assert sorted(NODES) == sorted(nodes)
        files = [node.partition("::")[0] for node in nodes]
        changes = sum(a != b for a, b in itertools.pairwise(files))
        assert 4 == changes, "tests of a file stay together"
    first, second = orders
    assert first != second
    assert NODES not in orders
    assert len({tuple(n[-1] for n in first[start : start + 5]) for start in range(0, 25, 5)}) > 1


def test_what_is_left_out_does_not_change_the_order_of_the_others() -> None:
    part = NODES[::3]

    assert [n for n in ordered(NODES, "7") if n in part] == ordered(part[::-1], "7")


# ------------------------------------------------------------------------------- alone
# The choice of tests that run alone, and what is told of those that fail.


TESTS = [f"tests/{file}.py::test_{number}[a b::c]" for file in "abc" for number in range(4)]


def test_a_seed_draws_of_all_files_in_turn() -> None:
    drawn = alone.draw(TESTS, "1", 8)

    assert drawn == alone.draw(TESTS, "1", 8)
    assert drawn != alone.draw(TESTS, "2", 8)
    assert 8 == len(set(drawn))
    for turn in (drawn[:3], drawn[3:6]):
        assert {"a", "b", "c"} == {Path(test.partition("::")[0]).stem for test in turn}
    assert sorted(TESTS) == sorted(alone.draw(TESTS, "1", 100))


@pytest.mark.long("session/test_order.py::test_a_seed_draws_of_all_files_in_turn")
def test_those_that_fail_alone_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_file.py").write_text(
        "seen = []\ndef test_first(): seen.append(1)\ndef test_second(): assert seen\n"
    )
    monkeypatch.setattr(alone, "ROOT", tmp_path)

    status = alone.main(["--count", "5", "--seed", "7"])

    output = capfd.readouterr().out
    assert 1 == status
    assert output.startswith("2 tests of seed 7, each alone\n")
    assert "assert seen" in output
    assert "fails alone: pytest test_file.py::test_second\n" in output
    assert output.endswith("1 passed or were skipped, 1 failed\n")


# ------------------------------------------------------------------------------- tiers
# The choice of the files of a tier, and of the quick run.


@pytest.mark.parametrize(
    ("mark", "left_out_of"),
    [
        ("", ["long"]),
        ("pytest.mark.slow", ["quick", "long"]),
        ("[\n    pytest.mark.system,\n    pytest.mark.long('a.py::b'),\n]", ["quick", "first"]),
    ],
)
def test_a_file_is_left_out_by_its_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mark: str, left_out_of: list[str]
) -> None:
    monkeypatch.setattr(needs, "ROOT", tmp_path.parent)
    monkeypatch.setattr(needs, "TEST_FOLDERS", (tmp_path,))
    file = tmp_path / "test_it.py"
    file.write_text(f"import pytest\n\npytestmark = {mark or None}\n\n\ndef test_it(): ...\n")
    assert left_out_of == [
        name
        for name, quick, tier in (
            ("quick", True, None),
            ("first", False, tiers.FIRST),
            ("long", False, tiers.LONG),
        )
        for options in [{"--quick": quick, "--tier": tier}]
        if tiers.pytest_ignore_collect(file, cast(Any, SimpleNamespace(getoption=options.get)))
    ]


@pytest.mark.parametrize(("is_quick", "run"), [(True, ["smoke"]), (False, ["slow", "smoke"])])
def test_single_tests_that_are_slow_are_left_out_of_the_quick_run(
    is_quick: bool, run: list[str]
) -> None:
    items: list[Any] = [
        SimpleNamespace(name=mark, get_closest_marker=mark.__eq__) for mark in ("slow", "smoke")
    ]
    hook = SimpleNamespace(pytest_deselected=lambda items: None)
    config = SimpleNamespace(getoption={"--quick": is_quick}.get, hook=hook)

    tiers.pytest_collection_modifyitems(cast(Any, config), items)

    assert run == [item.name for item in items]


def test_each_file_is_of_one_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "ROOT", tmp_path)
    monkeypatch.setattr(needs, "TEST_FOLDERS", (tmp_path,))
    files = [tmp_path / f"test_{number}.py" for number in range(40)]
    for file in files:
        file.write_text("def test_it(): ...\n")
    shares = [
        [
            file
            for file in files
            if not tiers.pytest_ignore_collect(
                file, cast(Any, SimpleNamespace(getoption={"--share": f"{number}/4"}.get))
            )
        ]
        for number in range(4)
    ]

    assert sorted(files) == sorted(itertools.chain(*shares))
    assert all(shares)


def test_more_options_leave_the_tests_quick() -> None:
    words = core_alone.command(["-n", "2"])

    assert ["-n", "2"] == words[-2:]
    assert "--quick" in words


@pytest.mark.extra("functions", "jobs", "openai", "routes", "web_sockets")
def test_extras_that_need_one_are_left_out_with_it() -> None:
    left_out = core_alone.with_those_that_need(["routes"])
    assert ["functions", "jobs", "openai", "routes", "tuning"] == left_out
    assert ["jobs", "openai", "web_sockets"] == core_alone.with_those_that_need(["web_sockets"])


ROOT = Path(__file__).resolve().parents[2]
#: What make and its shell are nothing without.
GIVEN = frozenset("cat env false make rm sh sleep true".split())
#: What begins a command.
STARTERS = frozenset("run Popen check_call check_output".split())
#: Programs of developers, which `make test` does not run.
ELSEWHERE = ("tests/bench/", "tests/faults/", "tests/gpu/")
#: A call that looks for a program, or its line in a table of programs and packages.
SEARCH = r"""(find_tool|which|_missing)\([^)]*"{0}"|"{0}": "[a-z]"""


def programs(text: str) -> Iterator[tuple[int, str]]:
    """Return the lines where a command begins with a program's name, and that name."""
    tree = ast.parse(text)
    commands = list(_commands(tree))
    names = {"wrapper", *(_name(_first(command)) for command in commands)} - {""}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and names & {_name(target) for target in node.targets}:
            commands.append(node.value)
    for command in commands:
        first = _first(command)
        name = str(first.value) if isinstance(first, ast.Constant) else ""
        if first is not command and re.fullmatch("[a-z/][^ ]*", name):
            yield command.lineno, name


def _commands(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Attribute(ast.Name("subprocess"), starter), [command, *_]):
                if starter in STARTERS:
                    yield command


def _name(node: ast.AST) -> str:
    return getattr(node, "id", getattr(node, "attr", ""))


def _first(command: ast.expr) -> ast.expr:
    while isinstance(command, ast.List | ast.Tuple) and command.elts:
        first = command.elts[0]
        command = first.value if isinstance(first, ast.Starred) else first
    return command


def test_the_search_finds_what_is_started() -> None:
    text = """
subprocess.run(["curl", url], check=True)
subprocess.Popen(("nsenter", *words))
line = ["unshare", "-r"]
subprocess.run(line)
server.wrapper = [*["prlimit"], "--x"]
"""
    assert {"curl", "nsenter", "prlimit", "unshare"} == {name for _, name in programs(text)}


def test_each_program_is_looked_for_by_the_file_that_starts_it() -> None:
    taken_for_granted = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if not str(path.relative_to(ROOT)).startswith(ELSEWHERE)
        for text in [path.read_text("utf-8")]
        if "subprocess" in text or "wrapper" in text
        for line, name in programs(text)
        if Path(name).name not in GIVEN and not re.search(SEARCH.format(re.escape(name)), text)
    ]

    assert [] == taken_for_granted
