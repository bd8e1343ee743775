"""Functions whose path would be one of the server's own are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zmqtriton.config import Problem
from zmqtriton_extras.routes.names import OWN_PATHS


def problems(config: Any) -> Iterator[Problem]:
    """Yield the problem of a function's configuration that no server accepts."""
    name = config.name
    if config.backend == "functions" and name in OWN_PATHS:
        text = f"/{name} is a path of the server: give the function another name, @model(name=…)"
        yield Problem(text, ("name",))
