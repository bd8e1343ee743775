"""Imports at the first use of a name: the public names of packages, and `module:attribute`.

The names of a package come from its modules. If the package imported them itself, a program that
needs one name would load all modules of the package.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any, Callable, Dict, Tuple


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
    """Return each public name with its module and its name there, as the source has them."""
    loader: Any = sys.modules[module].__loader__
    block = loader.get_source(module).partition("\nif TYPE_CHECKING:")[2].partition("\nelse:")[0]
    return {
        name.split()[-1]: (place, name.split()[0])
        for place, names in (each.split(" import ") for each in block.split("\n    from ")[1:])
        for name in names.strip("()\n ").split(",")
        if name.strip()
    }


def _value_of(place: str, name: str) -> Any:
    module = import_module(place)
    return getattr(module, name) if hasattr(module, name) else import_module(f"{place}.{name}")


def new_module(name: str, path: str) -> Tuple[Any, Callable[[Any], None]]:
    """Return an empty module, and the function that runs the file in it."""
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"no module in {path}")
    return module_from_spec(spec), spec.loader.exec_module


def load_reference(reference: str) -> Any:
    """Import and return the object of a reference, `module:attribute` or `module`."""
    module, _, attribute = reference.partition(":")
    value: Any = import_module(module)
    for name in filter(None, attribute.split(".")):
        value = getattr(value, name)
    return value
