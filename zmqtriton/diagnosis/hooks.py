"""Kinds of findings that add-ons offer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from zmqtriton.config.errors import FieldPath, Problem
from zmqtriton.diagnosis.facts.served import AnswerReader, Facts
from zmqtriton.diagnosis.facts.target import Chapter, Target
from zmqtriton.environments.demand import EnvironmentSpec
from zmqtriton.findings import Finding
from zmqtriton_floor.settings.offers import Hook


class MoreFindings(Protocol):
    """A module with findings about a model that a server has."""

    #: Asks the server for what the other functions need.
    read: Callable[[AnswerReader, Facts], Any]
    #: Returns causes.
    findings: Callable[[Facts, Any], Iterable[Finding]]
    #: Returns all other findings.
    notes: Callable[[Facts, Any], Iterable[Finding]]


#: Yields problems of a model's Python file for `check`; it may import the file in a process of its
#: own, and call the model there if the second argument is True.
FILE = Hook[Callable[[Path, bool], Iterable[Problem]]]("diagnosis.file")
#: Gets a configuration and a version's directory, and yields problems of its files for `check`.
VERSION = Hook[Callable[[Any, Path], Iterable[Problem]]]("diagnosis.version")
#: Yields warnings of a configuration for `check`.
CONFIG = Hook[Callable[[Any], Iterable[Problem]]]("diagnosis.config")
#: Gets the configurations of all models by name, and yields problems between models for `check`:
#: pairs of a model's name and its problem.
CONFIGS = Hook[Callable[[Mapping[str, Any]], Iterable[tuple[str, Problem]]]]("diagnosis.configs")
#: Gets the Python that a model needs and the parameter that names it, and yields problems for
#: `check`.
ENVIRONMENT = Hook[Callable[[EnvironmentSpec, FieldPath], Iterable[Problem]]](
    "diagnosis.environment"
)
#: Explains the state of a loaded model for `zmqtriton-ctl explain`.
MODEL = Hook[MoreFindings]("diagnosis.model")
#: Examines the server or the machine for `zmqtriton-ctl doctor`, and yields chapters of the report.
CHAPTERS = Hook[Callable[[Target], Iterable[Chapter]]]("diagnosis.chapters")
