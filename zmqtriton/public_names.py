"""Modules of add-ons under the names that programs import, such as `zmqtriton.testing`.

They are the same modules by both names: an exception or a context of one is that of the other. The
add-on is looked for when such a name is first imported; a wheel has a file that knows it.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

_ROOT = "zmqtriton."
#: The modules in use, by their public names.
_places: dict[str, str] = {}


def find_spec(name: str) -> ModuleSpec | None:
    """Return the spec of a module below `zmqtriton` that has its file in an add-on.

    Raises ModuleNotFoundError without an add-on for it.
    """
    public = name.removeprefix(_ROOT)
    if "." in public:
        return None  # within a package that has been found
    from zmqtriton import addons

    reference = addons.find("public", public)
    if not reference or ":" in reference:
        text = f"No module named {name!r}: neither zmqtriton nor an add-on that is installed has it"
        raise ModuleNotFoundError(text, name=name)
    return _second_name(name, reference)


def take_place(name: str, place: str) -> None:
    """Give a module a public name, and with it the modules in it if it is a package."""
    _places[name] = place
    sys.modules[name] = importlib.import_module(place)


def _second_name(name: str, place: str) -> ModuleSpec | None:
    found = importlib.util.find_spec(place)
    if found is None:
        return None
    is_package = found.submodule_search_locations is not None
    return ModuleSpec(name, _SecondName(found), origin=found.origin, is_package=is_package)


class _SecondName(Loader):
    def __init__(self, found: ModuleSpec) -> None:
        self._found = found

    def create_module(self, spec: ModuleSpec) -> None:
        return None  # the import makes one, which nobody sees

    def exec_module(self, module: ModuleType) -> None:
        take_place(module.__name__, self._found.name)

    def get_code(self, name: str) -> CodeType:
        """Return the code of a module for `python -m`, which runs it as `__main__`."""
        loader: Any = self._found.loader
        code: CodeType = loader.get_code(self._found.name)
        return code


class _WithinPackages:
    """Finds modules of packages with public names, whose files would be read twice otherwise."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not name.startswith(_ROOT):
            return None
        package, _, inside = name.removeprefix(_ROOT).partition(".")
        place = _places.get(_ROOT + package)
        return _second_name(name, f"{place}.{inside}") if place and inside else None


sys.meta_path.insert(0, _WithinPackages)
