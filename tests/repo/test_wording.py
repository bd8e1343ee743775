"""The rule on docstrings: the first line is a noun or an imperative, and fits on its line."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT

#: Clauses without a head: "What X does" leaves open whether X is returned, done or described.
HEADLESS = {"What", "Whether", "Who", "Whose", "Where", "How", "That", "Those"}
DIRECTORIES = ("zmqtriton", "stub", "frontends", "addons", "tests")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings() -> Iterator[tuple[Path, str, str]]:
    """Return file, name and docstring of everything that has one."""
    for directory in DIRECTORIES:
        for path in sorted((ROOT / directory).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
                    yield path.relative_to(ROOT), getattr(node, "name", ""), text


def test_docstrings_begin_with_a_noun_or_an_imperative() -> None:
    wrong = [
        f"{path} {name}: {text.splitlines()[0]}"
        for path, name, text in docstrings()
        if text.split()[0] in HEADLESS
    ]

    assert wrong == []
