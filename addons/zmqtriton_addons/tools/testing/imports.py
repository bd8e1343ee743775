"""The modules of a model under test, kept apart from those of other models in the same process.

Every version directory is named like others, so each model's code would be `1.model`. While a model
is loaded its own directories are on the module path, and its own modules in `sys.modules`; what was
there before comes back at the end.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import ClassVar


class ModelImports:
    """The entries of `sys.path` and `sys.modules` that belong to one model."""

    #: The directories of all models that are loaded now.
    _loaded: ClassVar[set[str]] = set()

    def __init__(self, file: str) -> None:
        """Set up for the model with this model.py."""
        directory = os.path.dirname(file)
        self._directories = {directory, os.path.dirname(directory)}
        self._path: list[str] = []
        self._hidden: dict[str, ModuleType] = {}

    def begin(self) -> None:
        """Hide the modules and directories of other models."""
        self._path = sys.path.copy()
        sys.path[:] = [entry for entry in sys.path if entry not in self._loaded]
        self._hidden = {name: sys.modules.pop(name) for name in self._own_names()}
        self._loaded.update(self._directories)
        importlib.invalidate_caches()  # a test may have written the file just now

    def end(self) -> None:
        """Forget the model's modules, and show those that were hidden."""
        for name in self._own_names():
            del sys.modules[name]
        sys.modules.update(self._hidden)
        sys.path[:] = self._path
        self._loaded.difference_update(self._directories)

    def _own_names(self) -> list[str]:
        """Return the imported modules whose names the model's directories have files for."""
        names = {
            entry.name.removesuffix(".py")
            for directory in self._directories
            for entry in os.scandir(directory)
            if entry.name.endswith(".py") or entry.is_dir()
        }
        return [name for name in sys.modules if name.partition(".")[0] in names]
