"""Reads which environments the models of a repository need, without a server.

Used by `zmqtriton-ctl env prepare`. Reads configurations and names, and runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from zmqtriton.sdk.models import (
    Environment,
    EnvironmentSpec,
    load_config,
    resolve_environment,
    scan,
)
from zmqtriton.sdk.wire import NotFound, ZmqTritonError


class ModelEnvironment(NamedTuple):
    """One model with the environment that it needs, or the error of reading it."""

    model: str
    result: Environment | EnvironmentSpec | ZmqTritonError
    #: True if the configuration was read, so that an error is about the model's Python.
    has_config: bool = True


def read_environments(
    place: Path, *, may_build: bool, config_name: str = ""
) -> Iterator[ModelEnvironment]:
    """Read the directory of one model, or of all models of a repository; skips ensembles."""
    if not place.is_dir():
        raise NotFound(f"there is no directory {place}; name a repository or a model")
    if scan.is_model_directory(place):
        yield from _read_model(place.absolute(), may_build, config_name)
        return
    for model in scan.scan_repositories([place.absolute()], config_name).values():
        yield from _read_model(model.path, may_build, config_name)


def _read_model(path: Path, may_build: bool, config_name: str) -> Iterator[ModelEnvironment]:
    try:
        config = load_config(path.name, path, scan.find_config(path, config_name))
    except ZmqTritonError as error:
        yield ModelEnvironment(path.name, error, has_config=False)
        return
    if config.HasField("ensemble_scheduling"):
        return
    try:
        yield ModelEnvironment(path.name, resolve_environment(config, path, may_build=may_build))
    except ZmqTritonError as error:
        yield ModelEnvironment(path.name, error)
