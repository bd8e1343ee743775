"""The repository agents of a configuration: which exist, and their parameters.

`checksum` is built in: the stub compares the files before it imports the model, since the
supervisor must not spend its time on large ones. Others are libraries of Triton, which cannot run
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from zmqtriton.config.errors import FieldPath, Problem
from zmqtriton.config.files import is_name_inside
from zmqtriton_floor.errors import closest_match

CHECKSUM = "checksum"


def agent_problems(config: Any, directory: str) -> Iterator[Problem]:
    """Return the fault; `directory` is where Triton would look for its agents."""
    for index, agent in enumerate(config.model_repository_agents.agents):
        field = ("model_repository_agents", "agents", index)
        if agent.name != CHECKSUM:
            yield Problem(
                f"unable to find 'libtritonrepoagent_{agent.name}.so' for repo agent "
                f"'{agent.name}', searched: {directory}",
                field,
                suggestion=closest_match(agent.name, [CHECKSUM]),
            )
        elif config.HasField("ensemble_scheduling") and agent.parameters:
            yield Problem(
                f"agent '{CHECKSUM}' has no process that could read the files of ensemble "
                f"'{config.name}'",
                field,
            )
        else:
            yield from _checksum_problems(agent.parameters, field)


def _checksum_problems(parameters: Iterable[str], field: FieldPath) -> Iterator[Problem]:
    for key in sorted(parameters):
        kind, _, file = key.partition(":")
        here = (*field, "parameters", key)
        if kind != "MD5":
            yield Problem(f"Unsupported checksum type in '{key}', expected 'MD5:<file>'", here)
        elif not is_name_inside(file):
            yield Problem(f"file '{file}' of a checksum is outside model directory", here)
