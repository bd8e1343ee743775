"""Makes blueprints of what a reader has found: the functions that need no disk.

Called in the supervisor's loop, but for `finish_reading`.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from zmqtriton.config.ensembles import complete_ensemble
from zmqtriton.config.errors import ConfigError, Problem
from zmqtriton.config.files import ClientFiles, inherit_labels
from zmqtriton.config.instances import set_instance_count
from zmqtriton.config.model_config import ModelHost, merge_completion
from zmqtriton.config.pbtxt import from_bytes, to_json
from zmqtriton.config.positions import PositionIndex, locate
from zmqtriton.environments.demand import Environment
from zmqtriton.reading.blueprint import Blueprint, FinalConfig, Scale
from zmqtriton.reading.instance_slots import (
    expected_slots,
    instance_slots,
)
from zmqtriton.reading.plain import ModelReading, SourceText
from zmqtriton_floor.errors import InvalidArgument, ZmqTritonError


def make_blueprint(reading: ModelReading, host: ModelHost) -> Blueprint:
    """Return the blueprint with its functions."""
    return _with_functions(
        reading.blueprint,
        _Configuration(
            from_bytes(reading.config), reading.files, reading.source, host, reading.finished
        ),
    )


def finish_reading(reading: ModelReading, host: ModelHost) -> ModelReading:
    """Return a reading with the configuration that is final if the model's code adds nothing.

    An ensemble's configuration needs those of its members, so it is finished later.
    """
    if reading.blueprint.final_config or reading.blueprint.ensemble:
        return reading
    configuration = _Configuration(from_bytes(reading.config), reading.files, reading.source, host)
    try:
        return replace(reading, finished=configuration.finish(""))
    except ConfigError as error:
        return replace(reading, finished=error)


def finished_config(config: Any, files: ClientFiles) -> FinalConfig:
    return FinalConfig(to_json(config), config.SerializeToString(), instance_slots(config), *files)


@dataclass(frozen=True)
class _Configuration:
    """A configuration that was read, with all that makes it final."""

    config: Any
    files: ClientFiles
    source: SourceText | None
    host: ModelHost
    #: Configuration as in a ModelReading.
    finished: FinalConfig | ZmqTritonError | None = None

    def finish(self, reply: str) -> FinalConfig:
        """Return the final configuration, given the model's completion. Raises ConfigError."""
        if self.finished is not None and not reply:
            if isinstance(self.finished, ZmqTritonError):
                raise self.finished
            return self.finished
        try:
            merged = merge_completion(self.config, reply, host=self.host)
        except ConfigError as error:
            raise self._located(error.problem) from error.__cause__
        return finished_config(merged, self.files)

    def finish_ensemble(self, members: Mapping[str, FinalConfig]) -> FinalConfig:
        """Return the final configuration, given those of the members. Raises ConfigError."""
        try:
            complete = complete_ensemble(self.config, {n: one.proto for n, one in members.items()})
        except ConfigError as error:
            raise self._located(error.problem) from None
        labels = inherit_labels(
            self.config, self.files.labels, {name: one.labels for name, one in members.items()}
        )
        return finished_config(complete, self.files._replace(labels=labels))

    def refuse_step(self, index: int, text: str) -> ConfigError:
        return self._located(Problem(text, ("ensemble_scheduling", "step", index, "model_name")))

    def _located(self, problem: Problem) -> ConfigError:
        """Return the error with the line of the file as it was read."""
        if self.source is None:
            return ConfigError(problem)
        path, positions = Path(self.source.path), PositionIndex(self.source.text)
        return ConfigError(locate(problem, path, positions))


def _with_functions(blueprint: Blueprint, configuration: _Configuration) -> Blueprint:
    ensemble = blueprint.ensemble and replace(
        blueprint.ensemble,
        finalize_config=configuration.finish_ensemble,
        step_error=configuration.refuse_step,
    )
    return replace(
        blueprint,
        ensemble=ensemble,
        finalize_config=configuration.finish,
        scaled=partial(_scaled, blueprint, configuration),
    )


def _scaled(blueprint: Blueprint, configuration: _Configuration, scale: Scale) -> Blueprint:
    """Return a blueprint with another number of instances. Raises InvalidArgument."""
    if isinstance(blueprint.environment, Environment) and blueprint.environment.host:
        raise InvalidArgument(
            f"model '{blueprint.name}' is run by the process that has bound it, which decides "
            "about its instances"
        )
    scaled = deepcopy(configuration.config)
    set_instance_count(scaled, scale.instances, scale.group)
    expected = expected_slots(scaled, configuration.host)
    changed = replace(
        blueprint,
        config=to_json(scaled),
        first_slot=expected[0],
        other_slots=expected[1:],
        final_config=blueprint.final_config and finished_config(scaled, configuration.files),
    )
    return _with_functions(changed, replace(configuration, config=scaled, finished=None))
