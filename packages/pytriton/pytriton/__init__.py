"""PyTriton's API on zmqtriton; the code is in `zmqtriton.pytriton`."""

from __future__ import annotations

import importlib
from typing import Any

from zmqtriton import pytriton

#: The version of PyTriton whose API this is.
__version__ = "0.7.0"


def __getattr__(name: str) -> Any:
    getattr(pytriton, name)
    return importlib.import_module(f"{__name__}.{name}")
