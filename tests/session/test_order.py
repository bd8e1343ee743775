"""The order of the tests that a seed decides."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

from tests.session import order

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
