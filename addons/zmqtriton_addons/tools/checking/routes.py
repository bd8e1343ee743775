"""Finds paths of models' own routes that a server would refuse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from zmqtriton.config import Problem, parameter_text
from zmqtriton_addons.routes import names

_FIELD = ("parameters", names.PATH)


def route_problems(config: Any) -> Iterator[Problem]:
    """Return the problem of the path of a model by itself."""
    path = path_in(config)
    problem = names.path_problem(path) if path else ""
    if problem:
        yield Problem(problem, _FIELD)


def taken_path_problems(config: Any, others: Mapping[str, str]) -> Iterator[Problem]:
    """Return the problem of a path that another model has; `others` has theirs, by model."""
    path = path_in(config)
    for model, other in others.items():
        if path and model != config.name and names.are_within(path, other):
            yield Problem(names.taken_text(path, other, model), _FIELD)


def path_in(config: Any) -> str:
    """Return the path that a configuration names; "" without one."""
    return parameter_text(config, names.PATH)
