"""The findings of a check: one list of problems, each with its severity."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from zmqtriton.config.positions import locate
from zmqtriton.sdk.models import ConfigError, Problem, Severity
from zmqtriton.sdk.wire import ZmqTritonError


@dataclass
class Findings:
    #: Errors, warnings and notes.
    problems: list[Problem] = field(default_factory=list)

    @property
    def errors(self) -> list[Problem]:
        """The problems that keep a server or a model from starting."""
        return self._of(Severity.ERROR)

    @property
    def warnings(self) -> list[Problem]:
        return self._of(Severity.WARNING)

    @property
    def notes(self) -> list[Problem]:
        """Return advice about a model that works."""
        return self._of(Severity.NOTE)

    def _of(self, severity: Severity) -> list[Problem]:
        return [problem for problem in self.problems if problem.severity is severity]


def warning(text: str) -> Problem:
    return Problem(text, severity=Severity.WARNING)


def to_warning(problem: Problem) -> Problem:
    return replace(problem, severity=Severity.WARNING)


def locate_all(problems: Iterable[Problem], path: Path | None) -> list[Problem]:
    """Return the problems with their places in the file."""
    return [locate(problem, path) for problem in problems]


def to_problem(error: ZmqTritonError, path: Path | None) -> Problem:
    """Return the error that would end a load, with its place if that is known."""
    if isinstance(error, ConfigError):
        return locate(error.problem, path)
    return Problem(error.text, error_number=error.number)
