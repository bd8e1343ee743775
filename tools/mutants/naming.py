"""Tests with real processes that may notice a mutant, judged by the words in their names.

Lines that such processes reach are not recorded: most are servers of several processes.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from tools.mutants.mutations import Mutation
from tools.mutants.rooms import room_of

_ROW = re.compile(r"^\| \w+ \| (.*?) \| (.*?) \|", re.MULTILINE)
_WORD = re.compile(r"[A-Z]?[a-z]{2,}")
_PLAIN = re.compile(r"(?:s|ed|ing|ion|ions|er|es)$")
_IGNORED = frozenset({"the", "of", "is", "it", "in", "to", "and", "for", "on", "init", "test"})


#: A process of a stub alone is a test of the stub's.
_RUNNING_STUB = "tests.stub.running"


class SystemTest(NamedTuple):
    name: str
    is_of_stub: bool
    file_words: frozenset[str]
    words: frozenset[str]
    imported: frozenset[str]


def words(text: str) -> frozenset[str]:
    """Return the words of a name or a sentence, without their endings."""
    plain_words = (word.lower() for word in _WORD.findall(text))
    return frozenset(_PLAIN.sub("", word)[:7] for word in plain_words if word not in _IGNORED)


class SystemTests:
    def __init__(self, tree: Path, conformance: Path) -> None:
        self._tree = tree
        self._rows = _rows(conformance)

    @cached_property
    def _tests(self) -> list[SystemTest]:
        return [
            test
            for path in sorted((self._tree / "tests").rglob("test_*.py"))
            for test in self._read(path)
        ]

    def _read(self, path: Path) -> Iterator[SystemTest]:
        text = path.read_text("utf-8")
        is_of_stub = _RUNNING_STUB in text
        if not (is_of_stub or "mark.system" in text or "subprocess" in text):
            return
        tree = ast.parse(text)
        name = path.relative_to(self._tree).as_posix()
        imported = frozenset(
            node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.module
        )
        file_words = words(f"{path.parent.name} {path.stem}")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                row = self._rows.get(f"{name.removeprefix('tests/')}::{node.name}", frozenset())
                own = words(node.name) | row
                yield SystemTest(f"{name}::{node.name}", is_of_stub, file_words, own, imported)

    def naming(self, mutation: Mutation, limit: int) -> list[str]:
        """Return the tests whose names, rows or imports share most words with the mutant."""
        room = room_of(mutation.path)
        inside = mutation.path.removeprefix(room.folder).removesuffix(".py")
        module = mutation.path.removesuffix(".py").replace("/", ".")
        of_module, of_place = words(Path(inside).name), words(inside)
        of_function = words(mutation.function)

        def score(test: SystemTest) -> int:
            is_imported = any(module.endswith(name) for name in test.imported)
            return (
                8 * is_imported
                + 2 * test.is_of_stub
                + 4 * len(of_module & test.file_words)
                + 2 * len(of_place & test.file_words)
                + 3 * len(of_module & test.words)
                + 2 * len(of_function & test.words)
                + len(of_place & test.words)
            )

        tests = [test for test in self._tests if room.name == "stub" or not test.is_of_stub]
        best = sorted(tests, key=lambda test: (-score(test), test.name))[:limit]
        return [test.name for test in best if score(test) > 0]


def _rows(conformance: Path) -> dict[str, frozenset[str]]:
    rows: dict[str, frozenset[str]] = defaultdict(frozenset)
    for text, tests in _ROW.findall(conformance.read_text("utf-8")):
        for test in re.findall(r"`(\S+::\w+)`", tests):
            rows[test] |= words(text)
    return rows
