"""PyTriton's API, whose code is an add-on; these are the names that scripts import."""

from __future__ import annotations

import importlib
from typing import Any

from zmqtriton_addons import pytriton


def __getattr__(name: str) -> Any:
    getattr(pytriton, name)
    return importlib.import_module(f"{__name__}.{name}")
