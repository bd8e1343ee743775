"""Imports at the first use of a name: the public names of packages, and `module:attribute`.

The names of a package come from its modules. If the package imported them itself, a program that
needs one name would load all modules of the package.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, Callable, Mapping


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package; `modules` have the names of each module, in words."""
    places = {name: module for module, names in modules.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = import_module(f"{package}.{places[name]}")
        except AttributeError as error:
            # `from package import name` would hide it and say that there is no such name
            raise ImportError(f"{package}.{places[name]} cannot be imported: {error}") from error
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("zmqtriton"):
                raise
            text = f"{error}: {package}.{name} is in zmqtriton, not in zmqtriton-client"
            raise ModuleNotFoundError(text, name=error.name) from None
        value = getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return find


def load_reference(reference: str) -> Any:
    """Import what a reference names, `module:attribute` or `module`."""
    module, _, attribute = reference.partition(":")
    value: Any = import_module(module)
    for name in filter(None, attribute.split(".")):
        value = getattr(value, name)
    return value
