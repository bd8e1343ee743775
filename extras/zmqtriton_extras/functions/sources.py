"""Finds the functions with `@model` in a Python file by parsing it, without importing it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from zmqtriton_extras.functions.backend.keeping import names_in
from zmqtriton_extras.functions.backend.names import model_name

_PACKAGE, _DECORATOR = "zmqtriton", "model"
_CLASS = "TritonPythonModel"
#: Maximum bytes of a file that is parsed; larger ones contain data.
_MAX_BYTES = 4 << 20


def _parsed(path: Path) -> ast.Module:
    try:
        is_read = path.is_file() and path.stat().st_size <= _MAX_BYTES
        text = path.read_bytes() if is_read else b""
        return ast.parse(text if _PACKAGE.encode() in text else b"")
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.parse(b"")  # the load says what is wrong with the file


def parameters_in(path: Path, name: str) -> dict[str, str]:
    """Return the parameters of a model that its file implies: instances that share are forks."""
    tree = _parsed(path)
    rows: list[Any] = tree.body
    words = {word for each in rows for word in _decorators(each)}
    marked = {n: row for row in rows for n in _names(row, words)}
    row = marked.get(name) or (next(iter(marked.values())) if len(marked) == 1 else None)
    keeps = next(
        (
            word.value.value
            for each in getattr(row, "decorator_list", ())
            for word in getattr(each, "keywords", ())
            if word.arg == "keeps" and isinstance(word.value, ast.Constant)
        ),
        None,
    )
    is_shared = keeps is True or (keeps is None and bool(names_in(tree)))
    return {"INSTANCES": "forks"} if row is not None and is_shared else {}


def models_in(path: Path) -> tuple[str, ...]:
    """Return the names of the models with `@model` in a file."""
    rows: list[Any] = _parsed(path).body
    words = {word for each in rows for word in _decorators(each)}
    if any(getattr(each, "name", "") == _CLASS for each in rows):
        return ()
    return tuple(name for each in rows for name in _names(each, words))


def _decorators(row: ast.stmt) -> Iterator[str]:
    """Yield the names that an import statement gives the decorator."""
    if isinstance(row, ast.ImportFrom) and row.module == _PACKAGE:
        yield from (a.asname or a.name for a in row.names if a.name == _DECORATOR)
    elif isinstance(row, ast.Import):
        rows = (a.asname or a.name for a in row.names if a.name == _PACKAGE)
        yield from (f"{name}.{_DECORATOR}" for name in rows)


def _names(row: Any, words: set[str]) -> Iterator[str]:
    """Yield the model name of a function or class that has the decorator."""
    for each in getattr(row, "decorator_list", ()):
        is_call = isinstance(each, ast.Call)
        if _written(each.func if is_call else each) in words:
            keywords = {k.arg: k.value for k in each.keywords} if is_call else {}
            name = getattr(keywords.get("name"), "value", "")
            yield name if name and isinstance(name, str) else model_name(row.name)


def _written(node: ast.expr) -> str:
    """Return an expression such as `model` or `zmqtriton.model` as text; "" for any other."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
