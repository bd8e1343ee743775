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
#: Yields problems of a version's files for `check`, by the configuration and the directory.
VERSION = Hook[Callable[[Any, Path], Iterable[Problem]]]("diagnosis.version")
#: Yields warnings of a configuration for `check`.
CONFIG = Hook[Callable[[Any], Iterable[Problem]]]("diagnosis.config")
#: Yields problems between models for `check`, each with its model, by the configurations of all.
CONFIGS = Hook[Callable[[Mapping[str, Any]], Iterable[tuple[str, Problem]]]]("diagnosis.configs")
#: Yields problems of the Python that a model asks for, by the path of the parameter, for `check`.
ENVIRONMENT = Hook[Callable[[EnvironmentSpec, FieldPath], Iterable[Problem]]](
    "diagnosis.environment"
)
#: Explains a model that a server has, for `zmqtriton-ctl explain`.
MODEL = Hook[MoreFindings]("diagnosis.model")
#: Yields chapters of an examination by `zmqtriton-ctl doctor`.
CHAPTERS = Hook[Callable[[Target], Iterable[Chapter]]]("diagnosis.chapters")
