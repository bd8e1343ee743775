"""Finds the modules that a file imports, directly and indirectly, without running them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

from zmqtriton.sdk.wire import InvalidArgument

#: Packages that every model's process has.
_PROVIDED = ("numpy", "triton_python_backend_utils", "zmqtriton")


class Imports:
    """The modules that a file and its modules import."""

    def __init__(self, file: Path) -> None:
        # where the backend has Python look
        self._roots = (file.parent, file.parent.parent)
        #: Files of the project by their paths relative to the import path.
        self.modules: dict[str, Path] = {}
        #: Names of modules outside the project.
        self._others: set[str] = set()
        self._read(file, ())

    @property
    def packages(self) -> list[str]:
        """The names of packages to install with pip for the modules."""
        distributions = packages_distributions()
        names = self._others - {*_PROVIDED, *sys.stdlib_module_names}
        return sorted({distributions.get(name, [name])[0] for name in names})

    def _read(self, file: Path, package: tuple[str, ...]) -> None:
        try:
            rows = [*_imported(ast.parse(file.read_bytes()), package)]
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise InvalidArgument(f"{file} cannot be read, correct it: {error}") from None
        for parts in rows:
            for count in range(1, len(parts) + 1):
                self._add(parts[:count])

    def _add(self, parts: tuple[str, ...]) -> None:
        """Add a module if its file is in the project, and read its imports."""
        inner = "/".join(parts)
        for place in (f"{inner}/__init__.py", f"{inner}.py"):
            files = (root / place for root in self._roots)
            if file := next((each for each in files if each.is_file()), None):
                if place not in self.modules:
                    self.modules[place] = file
                    self._read(file, parts[: len(parts) - (file.name != "__init__.py")])
                return
        if len(parts) == 1 and not any((root / inner).is_dir() for root in self._roots):
            self._others.add(inner)


def _imported(tree: ast.Module, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the imported modules and names of a parsed file, each split at its dots."""
    for row in ast.walk(tree):
        if isinstance(row, ast.Import):
            yield from (tuple(each.name.split(".")) for each in row.names)
        elif isinstance(row, ast.ImportFrom):
            around = package[: len(package) - row.level + 1] if row.level else ()
            module = (*around, *filter(None, (row.module or "").split(".")))
            yield from ((*module, each.name) for each in row.names)
