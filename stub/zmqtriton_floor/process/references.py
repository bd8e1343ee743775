"""References to objects, `module:attribute` or `module`, which are imported when they are used."""

from __future__ import annotations

import importlib
from typing import Any


def load(reference: str) -> Any:
    """Import what a reference names."""
    module, _, attribute = reference.partition(":")
    value: Any = importlib.import_module(module)
    for name in filter(None, attribute.split(".")):
        value = getattr(value, name)
    return value
