"""The file of a matrix: a line of JSON for each fault, with the tests that notice it.

Lines are only appended, so a run can continue where an earlier one was killed; an incomplete line
is read as missing.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from tools.mutants.mutations import Mutation

#: So many tests need not be known to notice a fault: it depends on none of them.
ENOUGH = 40


class Fault(NamedTuple):
    """A mutant, with the tests that reach it."""

    mutation: Mutation
    #: The tests that reach it.
    tests: list[str]
    #: True for one that an import runs: it needs an interpreter that has not imported the module.
    needs_import: bool = False


class Kill(NamedTuple):
    """The result of one fault."""

    name: str
    path: str
    line: int
    change: str
    #: The number of tests that reach it.
    reached_by: int
    #: Of a fault that more tests notice than ENOUGH, the cheapest ones.
    noticed_by: list[str]
    #: True if not all of its tests were run: the first ones hung, or the import failed.
    is_cut: bool = False


class KillFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[Kill]:
        if not self._path.exists():
            return []
        kills = {}
        for line in self._path.read_text("utf-8").splitlines():
            try:
                kill = Kill(**json.loads(line))
            except ValueError:
                continue  # the end of a run that was killed
            kills[kill.name] = kill
        return [*kills.values()]

    def append(self, kill: Kill) -> None:
        with self._path.open("a+b") as file:
            file.seek(0, 2)
            if file.tell():
                file.seek(-1, 2)
                if file.read(1) != b"\n":  # a run ended within a line
                    file.write(b"\n")
            file.write(json.dumps(kill._asdict()).encode() + b"\n")


def kill_of(fault: Fault, noticed_by: Iterable[str], *, is_cut: bool = False) -> Kill:
    mutation = fault.mutation
    change = f"{mutation.before} -> {mutation.after}"
    names = sorted(noticed_by)
    return Kill(
        mutation.name, mutation.path, mutation.line, change, len(fault.tests), names, is_cut
    )


def function_of(test: str) -> str:
    """Return the name of a test without its parametrized case."""
    return test.partition("[")[0]


def by_test(kills: Iterable[Kill]) -> dict[str, set[str]]:
    """Return the faults that each test notices in any of its cases."""
    noticed = defaultdict[str, set[str]](set)
    for kill in kills:
        for test in kill.noticed_by:
            if "::" in test:
                noticed[function_of(test)].add(kill.name)
    return noticed


def alone(kills: Iterable[Kill]) -> dict[str, list[Kill]]:
    """Return, by test, the faults that no other test notices; cut-off results are left out."""
    only = defaultdict[str, list[Kill]](list)
    for kill in kills:
        tests = {*map(function_of, kill.noticed_by)}
        if len(tests) == 1 and not kill.is_cut:
            only[tests.pop()].append(kill)
    return only


def cover(kills: Iterable[Kill], reached: Mapping[str, set[str]]) -> list[str]:
    """Return few tests that together notice all noticed faults, and reach all reached lines.

    Tests that add most come first.
    """
    noticed = by_test(kills)
    for test, lines in reached.items():
        noticed.setdefault(test, set()).update(lines)
    left = Counter({test: len(names) for test, names in noticed.items()})
    chosen, seen = [], set[str]()
    while left:
        # what a test had as news can only have become fewer: the first that keeps its number wins
        test, count = max(left.items(), key=lambda row: (row[1], row[0]))
        news = noticed[test] - seen
        if len(news) < count:
            left[test] = len(news)
        else:
            chosen.append(test)
            seen |= news
            del left[test]
        if not left.get(test, 1):
            del left[test]
    return chosen
