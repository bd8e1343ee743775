"""`python -m tools.suite`: figures on the tests, room by room, without tests of extras.

Tests that use private names fix the code's structure instead of its promises; fixtures and classes
with one name in many files are often the same setup, written many times.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.repo.sources import nodes_of, tree_of
from tests.session import tiers
from tests.support.needs import ROOT
from tools.report import statements

#: Rooms whose tests are rows: what Triton answers, what a configuration or an option means.
TABLES = ("config", "conformance", "options", "peers", "protos")
LEVELS = ("promises", "tables", "processes")
#: Whose private names are no others'; those of `os` and `sys` are documented.
_OWN = ("self", "cls", "super()", "os", "sys")
#: Public names of named tuples, which are underlined for the sake of their fields.
_OF_TUPLES = ("_replace", "_make", "_asdict", "_fields", "_field_defaults")
_COLUMNS = ("statements", *LEVELS, "private", "server", "prepare", "World")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def room_of(path: Path) -> str:
    """Return the folder of a test file, under which its figures count."""
    words = path.relative_to(ROOT / "tests").parts
    return "/".join(words[: 1 + (words[0] == "standard")])


def private_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Return the private names of other modules that a file uses, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            if _is_private(node.attr) and ast.unparse(node.value) not in _OWN:
                yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, each.name) for each in node.names if _is_private(each.name))


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in _OF_TUPLES


def shape(path: Path) -> Counter[str]:
    """Return the figures of one file."""
    tree = tree_of(path)
    nodes = nodes_of(tree)
    counts = Counter[str](statements=statements(nodes), private=len([*private_names(tree)]))
    is_table = path.relative_to(ROOT / "tests").parts[0] in TABLES
    of_file = tiers.file_marks(path)
    for node in nodes:
        if isinstance(node, _Function):
            decorators = [ast.unparse(each) for each in node.decorator_list]
            if node.name.startswith("test_"):
                marks = of_file | {each.partition("pytest.mark.")[2] for each in decorators}
                counts[_level(is_table, {*marks})] += 1
            elif node.name in ("server", "prepare"):
                counts[node.name] += 1
        elif isinstance(node, ast.ClassDef):
            counts["World"] += node.name == "World"
    return counts


def _level(is_table: bool, marks: set[str]) -> str:
    if marks & {"system"}:
        return "processes"
    return "tables" if is_table else "promises"


def main() -> int:
    rooms = defaultdict[str, Counter[str]](Counter)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for name in (room_of(path), "all"):
            rooms[name].update(shape(path))
    print(f"{'':28}" + "".join(f"{name:>11}" for name in _COLUMNS))
    for name in [*sorted(rooms.keys() - {"all"}), "all"]:
        print(f"{name:28}" + "".join(f"{rooms[name][column]:11,}" for column in _COLUMNS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
