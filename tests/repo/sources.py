"""The modules that we ship, as syntax trees: each file is parsed once, and each tree walked once.

`forget` frees them; conftest.py calls it after the last test of this folder.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.support.needs import ROOT

#: The path roots; every package below one is named by its folder.
PATH_ROOTS = (ROOT / "stub", ROOT / "frontends", ROOT / "standard", ROOT / "extras", ROOT)


#: The packages of add-ons: standard ones, and extras.
ADD_ONS = ("zmqtriton_standard", "zmqtriton_extras")


class Source(NamedTuple):
    module: str
    path: Path
    tree: ast.Module

    @property
    def stem(self) -> str:
        return self.path.stem

    @property
    def nodes(self) -> tuple[ast.AST, ...]:
        return nodes_of(self.tree)


@cache
def sources() -> tuple[Source, ...]:
    """Every module that we ship but the demonstration models and examples: users' code."""
    return tuple(Source(module, path, tree_of(path)) for module, path in modules().items())


@cache
def modules() -> dict[str, Path]:
    """The same modules, with their files, which are not read."""
    files = {}
    for root in PATH_ROOTS:
        for package in sorted(root.glob("zmqtriton*/")):
            if not package.name.isidentifier():
                continue  # the repository that `make run` has made
            for path in sorted(package.rglob("*.py")):
                parts = path.relative_to(root).with_suffix("").parts
                is_of_users = "demo/models" in str(path) or "examples" in parts[:-2]
                if not is_of_users and "tests" not in parts[:-1]:
                    files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def files_below(place: Path) -> list[Path]:
    """Return the files of Python in a folder, or a file alone; no tests or examples of extras."""
    if place.is_file():
        return [place]
    within = ROOT / "extras"
    return [
        path
        for path in sorted(place.rglob("*.py"))
        if within not in path.parents
        or not {"tests", "examples"} & {*path.relative_to(within).parts}
    ]


@cache
def tree_of(path: Path) -> ast.Module:
    return parsed(path.read_text("utf-8"), str(path))


def parsed(text: str, name: str = "") -> ast.Module:
    gc.disable()  # it would look at all nodes for each thousand new ones; forget() turns it on
    return ast.parse(text, name)


@cache
def nodes_of(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Return the node and all below it, as `ast.walk` does."""
    gc.disable()
    return tuple(ast.walk(tree))


@cache
def imported(source: Source) -> tuple[tuple[int, str], ...]:
    """(line, full name) of every module that the source imports, and of what it takes from it."""
    return tuple(_imported(source))


def _imported(source: Source) -> Iterator[tuple[int, str]]:
    package = source.module.split(".")
    if source.stem != "__init__":
        package = package[:-1]
    for node in source.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *(node.module.split(".") if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"


def import_graph() -> dict[str, set[str]]:
    """Module to the modules of ours that it imports, anywhere and for whatever purpose."""
    names = {source.module for source in sources()}
    graph = {}
    for source in sources():
        used = {name if name in names else name.rpartition(".")[0] for _, name in imported(source)}
        graph[source.module] = (used & names) - {source.module}
    return graph


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def forget() -> None:
    """Free all trees: with them each collection of garbage would look at millions of objects."""
    for function in (sources, tree_of, nodes_of, imported):
        function.cache_clear()
    gc.enable()
