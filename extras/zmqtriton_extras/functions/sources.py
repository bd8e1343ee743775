"""Tells files of functions from other Python files, by their text: nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from zmqtriton_extras.functions.backend.names import model_name

_PACKAGE = "zmqtriton"
_DECORATOR = "model"
_CLASS = "TritonPythonModel"
#: Larger files are data.
_MAX_BYTES = 4 << 20


def models_in(path: Path) -> tuple[str, ...]:
    """Return the names of the models that a file declares by `@model`; () for other files."""
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES + 1)
    except OSError:
        return ()  # the load says what is wrong with the file
    if len(text) > _MAX_BYTES or _PACKAGE.encode() not in text:
        return ()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    if any(isinstance(each, ast.ClassDef) and each.name == _CLASS for each in tree.body):
        return ()
    words = {*_decorators(tree)}
    return tuple(
        name
        for each in tree.body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        for decorator in each.decorator_list
        if (name := _name(each.name, decorator, words))
    )


def _decorators(tree: ast.Module) -> Iterator[str]:
    """Return the names that the decorator has in a module."""
    for each in tree.body:
        if isinstance(each, ast.ImportFrom) and each.module == _PACKAGE:
            yield from (a.asname or a.name for a in each.names if a.name == _DECORATOR)
        elif isinstance(each, ast.Import):
            names = (a.asname or a.name for a in each.names if a.name == _PACKAGE)
            yield from (f"{name}.{_DECORATOR}" for name in names)


def _name(function: str, decorator: ast.expr, words: set[str]) -> str:
    """Return the name of the model that a decorator makes of a function; "" for another one."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    if ast.unparse(called) not in words:
        return ""
    for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
        if (
            keyword.arg == "name"
            and isinstance(keyword.value, ast.Constant)
            and keyword.value.value
        ):
            return str(keyword.value.value)
    return model_name(function)
