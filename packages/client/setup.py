"""Gathers the modules of the server that its clients import below `modules/`, and packs those.

They keep their names and their bytes: a program that has the server needs no other import, and
where both are installed the files are the same, also those for their public names, which are
written here as there. An sdist has them already.
"""

from __future__ import annotations

import ast
import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
GATHERED = HERE / "modules"
#: What programs import, and how it is found by its public name. All that these import comes with
#: them, also where a function does it.
ROOTS = (
    "zmqtriton_extras.door.client.connection",
    "zmqtriton_extras.pytriton.constants",
    "zmqtriton_extras.pytriton.declaration",
    "zmqtriton_extras.pytriton.exceptions",
    *(
        f"zmqtriton_extras.pytriton.client.{name}"
        for name in ["asyncio_utils", "auth", "client", "exceptions", "utils", "warnings"]
    ),
)
#: Files that are no modules.
BESIDE = ("py.typed", "descriptors.pb")


def file_of(module: str) -> Path | None:
    """Return the file of a module or a package in the checkout, or None."""
    for root in (".", "stub", "frontends", "standard", "extras"):
        path = CHECKOUT / root / Path(*module.split("."))
        for file in (path / "__init__.py", path.with_suffix(".py")):
            if file.is_file():
                return file
    return None


def imports(module: str) -> Iterator[str]:
    """Yield the modules that a module imports when it is used, with names of packages resolved."""
    for node in running(ast.parse((file_of(module) or HERE).read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            lazy = lazy_names(node.module)
            for alias in node.names:
                yield lazy.get(alias.name, f"{node.module}.{alias.name}")


def running(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes but those for type checkers."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if not is_for_types(node):
            yield from running(node)
        elif isinstance(node, ast.If):
            for other in node.orelse:
                yield from running(other)


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"


def lazy_names(module: str) -> dict[str, str]:
    """Return the modules of the names that a module imports when they are asked for."""
    file = file_of(module)
    if file is None:
        return {}
    return {
        alias.name: name if file_of(name := f"{node.module}.{alias.name}") else node.module
        for branch in ast.parse(file.read_text("utf-8")).body
        if is_for_types(branch)
        for node in ast.walk(branch)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def needed() -> set[str]:
    """Return the modules of the clients, and the packages around them."""
    names: set[str] = set()
    open_ones = [*ROOTS]
    while open_ones:
        name = open_ones.pop()
        if name.startswith("zmqtriton") and name not in names and file_of(name) is not None:
            names.add(name)
            open_ones += [*imports(name), *filter(None, [name.rpartition(".")[0]])]
    return names


def gather() -> None:
    shutil.rmtree(GATHERED, ignore_errors=True)
    names = needed()
    for name in sorted(names):
        file = file_of(name)
        assert file is not None
        parts = name.split(".")
        folder = GATHERED.joinpath(*(parts if file.name == "__init__.py" else parts[:-1]))
        folder.mkdir(parents=True, exist_ok=True)
        beside = [file.with_name(each) for each in BESIDE] if file.name == "__init__.py" else []
        for each in (file, *beside):
            if each.is_file():
                shutil.copyfile(each, folder / each.name)
    runpy.run_path(str(CHECKOUT / "setup.py"))["write_public"](GATHERED / "zmqtriton", names)


is_checkout = not (HERE / "PKG-INFO").exists()
if is_checkout:
    gather()
try:
    setup()
finally:
    if is_checkout:  # which would have two of each module
        for folder in (GATHERED, HERE / "build"):
            shutil.rmtree(folder, ignore_errors=True)
