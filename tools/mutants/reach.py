"""The tests that reach each line of the rooms, among tests that start no server.

Recorded once; later runs record only tests whose file, or files that they reach, have changed.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import coverage

from tests.session.tiers import is_slow
from tools.mutants.mutations import Mutation
from tools.mutants.rooms import FEATURES, ROOT, modules

#: Where tests of the rooms lie; those that take seconds count there alone.
_FOLDERS = (
    "tests/broker/",
    "tests/frontends/entrance/",
    "tests/frontends/gateway/",
    "tests/stub/",
    "tests/reading/",
    "tests/supervisor/",
    *(f"tests/standard/{room}/" for room in FEATURES),
    "extras/zmqtriton_extras/canaries/tests/",
)
_SUPPORT = "tests/support"
MARKS = ("-m", "not system and not triton and not gpu")


def is_fast(test: str) -> bool:
    """Return whether `make quick` has this test, or this file of tests."""
    return not is_slow(ROOT / test.partition("::")[0])


class Reach:
    def __init__(self) -> None:
        #: Test to the seconds that it takes, of those that pass.
        self.seconds: dict[str, float] = {}
        #: Module to line to tests.
        self._lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        #: What the tests, and all that they reach, were when they were recorded.
        self._hashes: dict[str, str] = {}

    def tests(self, mutation: Mutation) -> list[str]:
        """Return the tests that reach the mutant; outside of functions, all that use its module."""
        lines = self._lines.get(mutation.path, {})
        span = range(mutation.line, mutation.last_line + 1) if mutation.function else list(lines)
        names = {test for line in span for test in lines.get(line, ())}
        return sorted(name for name in names if name in self.seconds)

    def stale(self, tree: Path) -> list[str]:
        """Return the test files to record again, and forget the recorded facts about them."""
        now = _hashes(tree)
        changed = {path for path in now | self._hashes if now.get(path) != self._hashes.get(path)}
        support = {str(Path(path).parent) for path in changed if not _is_test_or_module(path)}
        by_file: dict[str, set[str]] = defaultdict(set)
        for module, lines in self._lines.items():
            for name in set[str]().union(*lines.values()):
                by_file[file_of(name)].add(module)
        stale = {
            path
            for path in {*by_file, *filter(_is_recorded, now)}
            if path in changed or by_file[path] & changed or _is_below(path, support)
        }
        self._hashes = now
        self.seconds = {k: v for k, v in self.seconds.items() if file_of(k) not in stale}
        for lines in self._lines.values():
            for line, tests in lines.items():
                lines[line] = {test for test in tests if file_of(test) not in stale}
        return sorted(stale & now.keys())

    def gather(self, folder: Path) -> None:
        """Add the records that test processes have left in this folder."""
        for path in folder.glob("seconds.*.json"):
            self.seconds |= json.loads(path.read_text("utf-8"))
        for path in folder.glob("coverage.*"):
            data = coverage.CoverageData(str(path))
            data.read()
            for module in modules(ROOT):
                for line, tests in data.contexts_by_lineno(str(ROOT / module)).items():
                    self._lines[module][line].update(filter(None, tests))

    def save(self, path: Path) -> None:
        names = sorted(self.seconds)
        number = {name: i for i, name in enumerate(names)}
        lines = {
            module: {
                line: [number[test] for test in sorted(tests) if test in number]
                for line, tests in reached.items()
            }
            for module, reached in self._lines.items()
        }
        document = {"hashes": self._hashes, "tests": names, "lines": lines, "seconds": self.seconds}
        path.write_text(json.dumps(document), "utf-8")

    @classmethod
    def load(cls, path: Path) -> Reach:
        """Load the recorded facts; empty without a file."""
        reach = cls()
        if path.exists():
            document = json.loads(path.read_text("utf-8"))
            names = document["tests"]
            reach._hashes = document["hashes"]
            reach.seconds = document["seconds"]
            for module, lines in document["lines"].items():
                for line, tests in lines.items():
                    reach._lines[module][int(line)] = {names[i] for i in tests}
        return reach


def _hashes(tree: Path) -> dict[str, str]:
    paths: Iterator[Path] = (tree / "tests").rglob("*.py")
    names = [path.relative_to(tree).as_posix() for path in paths]
    return {
        name: hashlib.sha256((tree / name).read_bytes()).hexdigest()[:16]
        for name in [*names, *modules(tree)]
    }


def file_of(test: str) -> str:
    return test.partition("::")[0]


def _is_test(path: str) -> bool:
    return path.startswith("tests/") and Path(path).name.startswith("test_")


def _is_test_or_module(path: str) -> bool:
    return _is_test(path) or not path.startswith("tests/")


def _is_recorded(path: str) -> bool:
    return _is_test(path) and (is_fast(path) or path.startswith(_FOLDERS))


def _is_below(path: str, folders: set[str]) -> bool:
    return _SUPPORT in folders or any(path.startswith(f"{folder}/") for folder in folders)
