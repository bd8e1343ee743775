"""`make report`: the sizes and shapes that a reviewer looks at, and that fail no commit.

A large file or class is a question: is it one thing, or could it be split? So is a small file that
only one other needs. Rules that must hold are in tests/repo.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.repo.sources import Source, import_graph, sources, tree_of
from tests.support.needs import ROOT

#: Larger ones are listed.
FILE_LINES, METHODS, ATTRIBUTES, FILES, FUNCTION_LINES, IMPORTS = 450, 22, 20, 22, 55, 18
#: A room of zmqtriton that is an add-on: it stands where scripts import it.
NAMED_ADD_ON = "embedded"
#: So many lines of each list.
_SHOWN = 40

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Sizes(NamedTuple):
    files: int
    lines: int
    statements: int
    functions: int
    classes: int


def statements(nodes: Iterable[ast.AST]) -> int:
    """Count statements except docstrings; line breaks do not matter."""
    return sum(
        isinstance(node, ast.stmt)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in nodes
    )


def _statement_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a module, but no expressions, which contain none."""
    nodes = [tree]
    for node in nodes:
        for name in ("body", "handlers", "cases", "orelse", "finalbody"):
            nodes += getattr(node, name, ())
        yield node


def sizes(paths: Iterable[Path]) -> Sizes:
    counts = Counter[str]()
    for path in paths:
        nodes = [*_statement_nodes(tree_of(path))]
        counts["files"] += 1
        counts["lines"] += path.read_bytes().count(b"\n")
        counts["statements"] += statements(nodes)
        counts["functions"] += sum(isinstance(node, _Function) for node in nodes)
        counts["classes"] += sum(isinstance(node, ast.ClassDef) for node in nodes)
    return Sizes(*(counts[name] for name in Sizes._fields))


def packages() -> dict[str, list[Path]]:
    """The files of each shipped package, and of the tests, by its path."""
    roots = {
        "zmqtriton": _but("zmqtriton", NAMED_ADD_ON),
        "stub": ["stub"],
        "frontends": ["frontends"],
        "standard": ["standard"],
        "tests": ["tests", "conftest.py"],
        f"zmqtriton/{NAMED_ADD_ON}": [f"zmqtriton/{NAMED_ADD_ON}"],
    }
    for path in sorted((ROOT / "extras/zmqtriton_extras").glob("*/__init__.py")):
        extra = path.parent.relative_to(ROOT)
        roots[str(extra)] = _but(str(extra), "tests")
        roots[f"{extra}/tests"] = [f"{extra}/tests"]
    return {name: [*_files(names)] for name, names in roots.items()}


def _but(folder: str, *rooms: str) -> list[str]:
    """Return the entries of a folder, except some rooms."""
    paths = sorted((ROOT / folder).iterdir())
    return [str(path.relative_to(ROOT)) for path in paths if path.name not in rooms]


def _files(names: Iterable[str]) -> Iterator[Path]:
    for name in names:
        path = ROOT / name
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path][: path.suffix == ".py"]


# ------------------------------------------------------------------- what is large


def large_files() -> Iterator[tuple[int, str]]:
    for paths in packages().values():
        for path in paths:
            lines = path.read_bytes().count(b"\n")
            if lines >= FILE_LINES:
                yield lines, str(path.relative_to(ROOT))


def large_classes() -> Iterator[tuple[int, str]]:
    for source, node in _classes():
        methods = len(_methods(node))
        if methods >= METHODS:
            yield methods, f"{source.module}.{node.name}"


def many_attributes() -> Iterator[tuple[int, str]]:
    for source, node in _classes():
        names = {
            target.attr
            for each in ast.walk(node)
            if isinstance(each, ast.Assign | ast.AnnAssign)
            for target in (each.targets if isinstance(each, ast.Assign) else [each.target])
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"
        }
        if len(names) >= ATTRIBUTES:
            yield len(names), f"{source.module}.{node.name}"


def large_folders() -> Iterator[tuple[int, str]]:
    counts = Counter(path.parent for paths in packages().values() for path in paths)
    for folder, count in counts.items():
        if count >= FILES:
            yield count, str(folder.relative_to(ROOT))


def long_functions() -> Iterator[tuple[int, str]]:
    for source in sources():
        for node in source.nodes:
            if isinstance(node, _Function):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines >= FUNCTION_LINES:
                    yield lines, f"{source.module}.{node.name}"


def wide_imports() -> Iterator[tuple[int, str]]:
    for module, used in import_graph().items():
        if len(used) >= IMPORTS:
            yield len(used), module


# ------------------------------------------------------------------- what is small


def single_importers() -> Iterator[tuple[int, str]]:
    """Yield modules that only one other module needs, with their line counts."""
    importers = defaultdict[str, set[str]](set)
    for module, used in import_graph().items():
        for name in used:
            importers[name].add(module)
    for source in sources():
        by = importers[source.module]
        if len(by) == 1 and source.stem not in ("__init__", "__main__"):
            lines = source.path.read_bytes().count(b"\n")
            yield lines, f"{source.module}, of {next(iter(by))}"


def pass_through_functions() -> Iterator[tuple[int, str]]:
    """Yield functions that only call another function with their own arguments."""
    for source in sources():
        for node in source.nodes:
            if isinstance(node, _Function) and not node.decorator_list and _passes_on(node):
                yield 1, f"{source.module}.{node.name}"


def _passes_on(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    if len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr):
        return False
    call = body[0].value
    if isinstance(call, ast.Await):
        call = call.value
    if not isinstance(call, ast.Call) or call.keywords:
        return False
    own = [argument.arg for argument in node.args.args if argument.arg not in ("self", "cls")]
    return [ast.unparse(argument) for argument in call.args] == own


def single_protocols() -> Iterator[tuple[int, str]]:
    """Yield protocols whose methods at most one class has."""
    classes = [{*_methods(node)} for _, node in _classes() if not _is_protocol(node)]
    for source, node in _classes():
        names = {*_methods(node)}
        if _is_protocol(node) and names:
            count = sum(names <= others for others in classes)
            if count <= 1:
                yield count, f"{source.module}.{node.name}"


def classes_made_once() -> Iterator[tuple[int, str]]:
    """Yield classes that only one place creates, with the number of their methods."""
    made = Counter(
        ast.unparse(node.func).rpartition(".")[2]
        for source in sources()
        for node in source.nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute)
    )
    for source, node in _classes():
        if made[node.name] == 1:
            yield len(_methods(node)), f"{source.module}.{node.name}"


def _classes() -> Iterator[tuple[Source, ast.ClassDef]]:
    for source in sources():
        for node in source.nodes:
            if isinstance(node, ast.ClassDef):
                yield source, node


def _methods(node: ast.ClassDef) -> list[str]:
    return [each.name for each in node.body if isinstance(each, _Function)]


def _is_protocol(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).startswith("Protocol") for base in node.bases)


# ---------------------------------------------------- what a reader has to keep in mind

_SUPERVISOR = "zmqtriton.supervisor"


def callbacks() -> Iterator[tuple[int, str]]:
    """Yield functions of the supervisor that call a parameter back, with their line counts."""
    for name, node in _functions_of(_SUPERVISOR):
        parameters = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        types = (ast.unparse(each.annotation) for each in parameters if each.annotation)
        if any(re.search(r"Callable\[.*, (None|object)\]", each) for each in types):
            yield node.lineno, name


def guards() -> Iterator[tuple[int, str]]:
    """Yield functions of the supervisor with an early return if their subject is already over."""
    for name, node in _functions_of(_SUPERVISOR):
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        guard = body[0] if len(body) > 1 else None
        if (
            isinstance(guard, ast.If)
            and not guard.orelse
            and [*map(ast.unparse, guard.body)] == ["return"]
        ):
            yield node.lineno, name


def _functions_of(package: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for source in sources():
        if source.module.startswith(package):
            for node in source.nodes:
                if isinstance(node, _Function):
                    yield f"{source.module}.{node.name}", node


# ---------------------------------------------------------------------- the page

_LISTS = (
    ("large files, by lines", large_files, True),
    ("large classes, by methods", large_classes, True),
    ("classes with many attributes", many_attributes, True),
    ("large folders, by files", large_folders, True),
    ("long functions, by lines", long_functions, True),
    ("wide import lists, by modules", wide_imports, True),
    ("modules with one importer, by lines", single_importers, False),
    ("functions that pass on", pass_through_functions, False),
    ("protocols, by classes that have their methods", single_protocols, False),
    ("classes made at one place, by methods", classes_made_once, False),
    ("functions of the supervisor that call back, by lines", callbacks, False),
    ("functions of the supervisor that begin with a guard, by lines", guards, False),
)


def main() -> int:
    shown = None if "--all" in sys.argv[1:] else _SHOWN
    print(f"{'':42}" + "".join(f"{name:>11}" for name in Sizes._fields))
    for name, paths in packages().items():
        print(f"{name:42}" + "".join(f"{count:11,}" for count in sizes(paths)))
    for title, rows, is_largest_first in _LISTS:
        ordered = sorted(rows(), reverse=is_largest_first)
        print(f"\n{title}: {len(ordered)}")
        for count, name in ordered[:shown]:
            print(f"{count:6}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
