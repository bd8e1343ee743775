"""PyTriton's API: Python functions served as models, from the user's own process.

Modules have PyTriton's names, so that a script needs only another import. They are imported at
first use, so that a client does not load the server's part.
"""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = frozenset(
    {
        "check",
        "client",
        "constants",
        "decorators",
        "exceptions",
        "model_config",
        "proxy",
        "triton",
        "utils",
    }
)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
