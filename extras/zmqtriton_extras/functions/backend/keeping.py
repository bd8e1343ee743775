"""The values of a file that stay when it is loaded again: `weights = kept(load)` at its top."""

from __future__ import annotations

import ast
import inspect
from typing import Any, Callable, List, TypeVar

_Made = TypeVar("_Made")
_NAME = "kept"


def kept(make: Callable[[], _Made]) -> _Made:
    """Make a value that stays: `weights = kept(load)` at the top of a file with functions.

    The value is made once, before instances are forked, and stays until the source of `make`, or of
    something that it uses, changes.
    """
    return make()


def kept_names(module: Any) -> List[str]:
    """Return the names of a module that have kept values."""
    try:
        return names_in(ast.parse(inspect.getsource(module)))
    except (OSError, TypeError):  # it is empty
        return []


def names_in(tree: ast.Module) -> List[str]:
    """Return the names that the top level of a file assigns kept values to."""
    return [
        target.id
        for row in tree.body
        if isinstance(row, (ast.Assign, ast.AnnAssign)) and isinstance(row.value, ast.Call)
        if _NAME in (getattr(row.value.func, "id", ""), getattr(row.value.func, "attr", ""))
        for target in (row.targets if isinstance(row, ast.Assign) else [row.target])
        if isinstance(target, ast.Name)
    ]
