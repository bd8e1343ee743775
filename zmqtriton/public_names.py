"""Modules of add-ons under the names that programs import, such as `zmqtriton.door`.

They are the same modules by both names: an exception or a context of one is that of the other. The
add-on is looked for when such a name is first imported.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

from zmqtriton import addons

_ROOT = "zmqtriton"


def find_spec(name: str) -> ModuleSpec | None:
    """Return how a module below `zmqtriton` is loaded that has no file there.

    Raises ModuleNotFoundError without an add-on for it.
    """
    public, _, rest = name.removeprefix(f"{_ROOT}.").partition(".")
    reference = addons.find("public", public)
    if rest and not reference:
        return None  # within a package of the server's own
    if not reference or ":" in reference:
        text = f"No module named {name!r}: neither zmqtriton nor an add-on that is installed has it"
        raise ModuleNotFoundError(text, name=name)
    place = ".".join(filter(None, (reference, rest)))
    found = importlib.util.find_spec(place)
    if found is None:
        return None
    is_package = found.submodule_search_locations is not None
    if is_package and not rest:
        _before_files.names.add(name)
    return ModuleSpec(name, _Alias(found), origin=found.origin, is_package=is_package)


class _Alias(Loader):
    """Gives a module a second name."""

    def __init__(self, found: ModuleSpec) -> None:
        self._found = found

    def create_module(self, spec: ModuleSpec) -> None:
        return None  # the import makes one, which nobody sees

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(self._found.name)

    def get_code(self, name: str) -> CodeType:
        """Return the code of a module for `python -m`, which runs it as `__main__`."""
        loader: Any = self._found.loader
        code: CodeType = loader.get_code(self._found.name)
        return code


class _BeforeFiles:
    """Finds modules in packages of add-ons; else their files would be read a second time."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.startswith(f"{_ROOT}.") and ".".join(name.split(".", 2)[:2]) in self.names:
            return find_spec(name)
        return None


_before_files = _BeforeFiles()
sys.meta_path.insert(0, _before_files)
