"""References to objects of other packages: `module:attribute`."""

from __future__ import annotations

import importlib
from typing import Any


def load(reference: str) -> Any:
    """Import what a reference names."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)
