"""Checks of the paths of routes, for `zmqtriton check`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from zmqtriton.sdk.models import Problem, parameter_text
from zmqtriton_extras.routes import names

_FIELD = ("parameters", names.PATH)


def warnings(config: Any) -> Iterator[Problem]:
    """Return the problem of a model's own path, regardless of other models."""
    path = parameter_text(config, names.PATH)
    problem = names.path_problem(path) if path else ""
    if problem:
        yield Problem(problem, _FIELD)


def conflicts(configs: Mapping[str, Any]) -> Iterator[tuple[str, Problem]]:
    """Yield models whose path equals, contains or is inside an earlier model's path."""
    paths: dict[str, str] = {}
    for name, config in configs.items():
        path = parameter_text(config, names.PATH)
        for model, other in paths.items() if path else ():
            if names.are_within(path, other):
                yield name, Problem(names.taken_text(path, other, model), _FIELD)
        if path:
            paths[name] = path
