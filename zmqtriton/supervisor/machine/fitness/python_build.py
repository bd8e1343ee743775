"""Builds of Python that no server runs on."""

from __future__ import annotations

import sys
import sysconfig

ADVICE = (
    "gRPC and orjson, which the server needs, have no packages for it; install the server with the "
    "usual build."
)


def problem() -> str:
    """Return a sentence if the server's Python is a build that it does not run on."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return f"{sys.executable} is a free-threaded build of Python, which is not supported"
    return ""
