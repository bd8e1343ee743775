"""What the models of a repository ask for, read without a server: for `zmqtriton-ctl env prepare`.

Reads configurations and names, and runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from zmqtriton.config.model_config import load_config
from zmqtriton.environments.demand import Environment, EnvironmentSpec, find_demand
from zmqtriton.repository.scan import find_config, is_model, scan, subdirectories
from zmqtriton_floor.errors import NotFound, ZmqTritonError


class ModelEnvironment(NamedTuple):
    """One model and what it asks for, or why that cannot be told."""

    model: str
    demand: Environment | EnvironmentSpec | ZmqTritonError


def read(place: Path, *, may_build: bool, config_name: str = "") -> Iterator[ModelEnvironment]:
    """Of one model's directory, or of all that a repository has. Ensembles ask for nothing."""
    if not place.is_dir():
        raise NotFound(f"there is no directory {place}")
    if is_model(place, subdirectories(place)):
        yield from _ask(place.absolute(), may_build, config_name)
        return
    for model in scan([place.absolute()], config_name).values():
        yield from _ask(model.path, may_build, config_name)


def _ask(path: Path, may_build: bool, config_name: str) -> Iterator[ModelEnvironment]:
    try:
        config = load_config(path.name, path, find_config(path, config_name))
        if not config.HasField("ensemble_scheduling"):
            yield ModelEnvironment(path.name, find_demand(config, path, may_build=may_build))
    except ZmqTritonError as error:
        yield ModelEnvironment(path.name, error)
