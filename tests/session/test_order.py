"""The order of tests, and their tiers."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.session import order, tiers
from tests.support import needs
from tools import alone

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
