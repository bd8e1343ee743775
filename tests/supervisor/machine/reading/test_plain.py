"""The texts that cross between the supervisor and its readers."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tests.support.server import MODELS_DIRECTORY
from zmqtriton.config.errors import ConfigError
from zmqtriton.options import Options
from zmqtriton.repository.place import ModelPlace
from zmqtriton.repository.scan import Promotion, VersionSelection
from zmqtriton.supervisor.actions import LoadOverride
from zmqtriton.supervisor.machine.model_reading import ModelReader
from zmqtriton.supervisor.machine.reading.findings import FoundModel, ModelReading
from zmqtriton.supervisor.machine.reading.plain import dumps, loads
from zmqtriton.supervisor.models.blueprint import Blueprint
from zmqtriton_floor.reasons import Kind

MODELS = sorted(path.parent.name for path in MODELS_DIRECTORY.glob("*/config.pbtxt"))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_arrives_as_it_was_read(name: str) -> None:
    place = ModelPlace(MODELS_DIRECTORY / name, MODELS_DIRECTORY)
    reading = ModelReader(Options(), gpus=(0,)).read(name, place)

    arrived = loads(dumps(FoundModel("/there", reading))).reading

    if isinstance(reading, ModelReading):
        assert _without_errors(reading.blueprint) == _without_errors(arrived.blueprint)
        reading = dataclasses.replace(reading, blueprint=arrived.blueprint)
    assert reading == arrived


def _without_errors(blueprint: Blueprint) -> tuple[Blueprint, list[Any]]:
    """Errors are equal by their number, text and reason."""
    problems = [
        one.problem and (one.problem.number, one.problem.text, one.problem.reason)
        for one in blueprint.versions.values()
    ]
    versions = {n: dataclasses.replace(v, problem=None) for n, v in blueprint.versions.items()}
    return dataclasses.replace(blueprint, versions=versions), problems


def test_an_error_keeps_its_number_and_its_reason() -> None:
    error = ConfigError("wrong").because(Kind.CONFIG_WRONG, path="/m", line=3)

    arrived = loads(dumps(error))

    assert (error.number, error.text, error.reason) == (
        arrived.number,
        arrived.text,
        arrived.reason,
    )


def test_names_that_are_no_utf_8_arrive() -> None:
    selection = VersionSelection(frozenset({1}), ((2, "x"),), (Promotion(3, "y"),))
    arguments = ("m\udcff", {"a": ("b", b"\xff")}, LoadOverride("{}"), selection, None, [1.5])

    assert arguments == loads(dumps(arguments))


def test_nothing_else_crosses() -> None:
    with pytest.raises(TypeError, match="PosixPath is not in the table"):
        dumps((Path("/"),))
    with pytest.raises(KeyError):
        loads('["Path", {}]')
