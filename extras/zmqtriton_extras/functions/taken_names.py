"""Refuses functions whose path the server itself uses, such as /docs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from zmqtriton.sdk.models import Problem
from zmqtriton_extras.routes.names import OWN_PATHS


def problems(config: Any) -> Iterator[Problem]:
    """Yield a problem if the configuration is of a function with such a name."""
    if config.backend == "functions":
        yield from problems_of([config.name])


def problems_of(names: Iterable[str]) -> Iterator[Problem]:
    """Yield a problem for each name that is the first part of a path of the server."""
    for name in OWN_PATHS.intersection(names):
        text = f"/{name} is a path of the server: give the function another name, @model(name=…)"
        yield Problem(text, ("name",))
