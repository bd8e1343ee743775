"""Problems of a model as data, and the one error of this package that carries them.

Made by every check of this package. A load shows the first problem, a check of a whole directory
all of them. The text is Triton's; our own additions come after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from zmqtriton.findings import Finding
from zmqtriton_floor.errors import Error, InvalidArgument, ZmqTritonError, from_number
from zmqtriton_floor.reasons import Kind

#: The place of a value: field names, each followed by an index if it is repeated, or by the key of
#: a map.
FieldPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Problem(Finding):
    """A problem that can make a load fail. Its detail is the parser's message."""

    field: FieldPath = ()
    #: The line with a caret under the place.
    excerpt: str = ""
    #: The kind of reason that it is of a load's failure; CONFIG_WRONG, if it has none of its own.
    kind: Kind | None = None
    values: Mapping[str, Any] | None = None
    #: The number of the error that ends a load.
    error_number: int = InvalidArgument.number
    #: True if this machine lacks something; another one may serve the model.
    is_host_specific: bool = False

    def __str__(self) -> str:
        if self.detail:
            shown = f"\n{self.excerpt}" if self.excerpt else ""
            return f"{self.text}\n{self.place}: {self.detail}{self.hint}{shown}"
        where = ""
        if self.line:
            where = f" (at {self.path}:{self.line})"
        elif self.path and self.path not in self.text:
            where = f" (in {self.path})"
        return f"{self.text}{where}{self.hint}"


class ConfigError(InvalidArgument):
    """Raised if a configuration cannot be read or is wrong; the text is the load's reason."""

    def __init__(self, problem: Problem | str) -> None:
        self.problem = Problem(problem) if isinstance(problem, str) else problem
        super().__init__(str(self.problem))
        _give_reason(self, self.problem)


def raise_first(problems: Iterable[Problem]) -> None:
    """Raise the error of the first problem, if there is one."""
    for problem in problems:
        raise to_error(problem)


def to_error(problem: Problem) -> ZmqTritonError:
    """Return the error that ends a load."""
    if problem.error_number == InvalidArgument.number:
        return ConfigError(problem)
    return _give_reason(from_number(problem.error_number, str(problem)), problem)


def _give_reason(error: Error, problem: Problem) -> Error:
    if problem.kind is not None:
        return error.because(problem.kind, **(problem.values or {}))
    path, line, detail = problem.path, problem.line, problem.detail
    if not detail:
        return error.because(Kind.CONFIG_WRONG, path=path, line=line)
    return error.because(
        Kind.CONFIG_UNREADABLE, path=path, line=line, detail=f"{detail}{problem.hint}"
    )


def rule_problems(*rules: tuple[object, str, FieldPath]) -> Iterator[Problem]:
    """Return the problems of broken rules; a rule is (is_broken, text, place)."""
    return (Problem(text, field) for is_broken, text, field in rules if is_broken)
