"""Imports at the first use of a name: the public names of packages, and `module:attribute`.

The names of a package come from its modules. If the package imported them itself, a program that
needs one name would load all modules of the package.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from importlib import import_module
from typing import Any, Callable, Dict, List, Tuple

_IMPORT = re.compile(r"^    from (\S+) import (?:\(([^)]*)\)|(.*))", re.MULTILINE)


def lazy_names(module: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module: its names are those below `if TYPE_CHECKING:`."""

    def find(name: str) -> Any:
        place, original = _names_of(module).get(name, ("", ""))
        if not place:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        try:
            value = _value_of(place, original)
        except AttributeError as error:
            # `from package import name` would hide it and say that there is no such name
            raise ImportError(f"{place} cannot be imported: {error}") from error
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("zmqtriton"):
                raise
            text = f"{error}: {module}.{name} is in zmqtriton, not in zmqtriton-client"
            raise ModuleNotFoundError(text, name=error.name) from None
        setattr(sys.modules[module], name, value)
        return value

    return find


@lru_cache(maxsize=None)
def _names_of(module: str) -> Dict[str, Tuple[str, str]]:
    """Return module and name there of each name, from the source, which type checkers read."""
    loader: Any = sys.modules[module].__loader__
    text = loader.get_source(module)
    text = text.partition("\nif TYPE_CHECKING:\n")[2].partition("\nelse:\n")[0]
    return {
        local or name: (place, name)
        for place, lines, line in _IMPORT.findall(text)
        for name, _, local in (each.partition(" as ") for each in _words(lines or line))
    }


def _words(names: str) -> List[str]:
    return [word for word in map(str.strip, names.split(",")) if word]


def _value_of(place: str, name: str) -> Any:
    module = import_module(place)
    return getattr(module, name) if hasattr(module, name) else import_module(f"{place}.{name}")


def load_reference(reference: str) -> Any:
    """Import what a reference names, `module:attribute` or `module`."""
    module, _, attribute = reference.partition(":")
    value: Any = import_module(module)
    for name in filter(None, attribute.split(".")):
        value = getattr(value, name)
    return value
