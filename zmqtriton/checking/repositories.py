"""All that is wrong with repositories: their models, and what only several of them together tell.

Called by the command with the options of a server. A directory that is itself a model is taken as
one; what it calls is then looked for beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from zmqtriton.checking.models import Findings, Rules, check_model, placed
from zmqtriton.checking.sources import look_into
from zmqtriton.config.ensembles import check_circle, member_names
from zmqtriton.config.errors import ConfigError, Problem, closest
from zmqtriton.config.members import check_members, no_version, not_that_version
from zmqtriton.config.parameters import CALLEES, callees
from zmqtriton.config.validation import problems
from zmqtriton.repository.scan import (
    is_model,
    is_text,
    not_found,
    not_unique,
    nothing_in,
    subdirectories,
)
from zmqtriton_floor.errors import InternalError


@dataclass
class Report:
    """By model, and what belongs to none."""

    models: dict[str, Findings] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)


def check(directories: Sequence[Path], rules: Rules, wanted: Sequence[str] = ()) -> Report:
    """`wanted` are models that a server would load at its start."""
    report = Report()
    places = _places(directories, report)
    known = _Models({name: places[name][0] for name in places}, _beside(directories), rules)
    for name, found in places.items():
        report.models[name] = one = known.find(name)
        for other in found[1:]:
            one.problems.append(Problem(not_unique(name), path=str(other)))
    for name in wanted:
        if name not in places and name != "*":
            report.problems.append(Problem(not_found(name), meant=closest(name, places)))
    for one in list(report.models.values()):
        _look_around(one, known)
    _look_into_sources(report)
    return report


class _Models:
    """Each is looked at once, those beside a single one when somebody calls them."""

    def __init__(self, places: dict[str, Path], beside: dict[str, Path], rules: Rules) -> None:
        self._places = {**beside, **places}
        self._rules = rules
        self._found: dict[str, Findings] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def find(self, name: str) -> Findings:
        if name not in self._found:
            self._found[name] = check_model(self._places[name], self._rules)
        return self._found[name]

    def meant(self, name: str) -> str:
        return closest(name, self._places)

    def called_by(self, name: str) -> dict[str, list[str]]:
        """What each ensemble calls, from this one on."""
        calls: dict[str, list[str]] = {}
        waiting = [name]
        for current in waiting:
            if current not in calls and current in self:
                config = self.find(current).config
                calls[current] = member_names(config) if config is not None else []
                waiting += calls[current]
        return calls


def _places(directories: Sequence[Path], report: Report) -> dict[str, list[Path]]:
    """The places of each model by its name; a place that is reached by two ways counts once."""
    places: dict[str, list[Path]] = {}
    for directory in directories:
        try:
            inside = subdirectories(directory)
        except InternalError as error:
            report.problems.append(Problem(error.text))
            continue
        report.warnings += [
            Problem("ignore the directory: its name is not UTF-8", path=str(directory / name))
            for name in sorted(os.listdir(directory))
            if not is_text(name)
        ]
        found = [directory.absolute()] if is_model(directory, inside) else inside
        if not found:
            report.warnings.append(Problem(nothing_in(directory)))
        for path in found:
            others = places.setdefault(path.name, [])
            if path.resolve() not in [other.resolve() for other in others]:
                others.append(path)
    return dict(sorted(places.items()))


def _beside(directories: Sequence[Path]) -> dict[str, Path]:
    """The neighbours of those that are models themselves."""
    found: dict[str, Path] = {}
    for directory in directories:
        try:
            if is_model(directory, subdirectories(directory)):
                around = subdirectories(directory.absolute().parent)
                found.update((path.name, path) for path in around)
        except InternalError:
            continue  # has been told
    return found


def _look_around(one: Findings, known: _Models) -> None:
    if one.config is None:
        return
    if one.config.HasField("ensemble_scheduling"):
        one.problems += placed(_member_problems(one, known), one.config_path)
    for name in callees(one.config):
        if name not in known:
            text = f"model '{one.config.name}' asks '{name}', which is not in the repository"
            problem = Problem(text, ("parameters", CALLEES), known.meant(name))
            one.warnings += placed([problem], one.config_path)


def _member_problems(one: Findings, known: _Models) -> Iterator[Problem]:
    """Models that are not there; if all are, and are right, whether they fit."""
    config = one.config
    try:
        check_circle(config.name, known.called_by(config.name))
    except ConfigError as error:
        yield replace(error.problem, field=("ensemble_scheduling",))
        return
    missing = False
    for index, step in enumerate(config.ensemble_scheduling.step):
        name = step.model_name
        if not name:
            continue
        here = ("ensemble_scheduling", "step", index, "model_name")
        if name not in known:
            missing = True
            why = not_found(name)
            yield Problem(no_version(config.name, name, why), here, known.meant(name))
        elif wrong := known.find(name).problems:
            missing = True
            yield Problem(no_version(config.name, name, wrong[0].text), here)
        elif step.model_version > 0 and step.model_version not in known.find(name).versions:
            text = not_that_version(config.name, name, step.model_version)
            yield Problem(text, (*here[:3], "model_version"))
    members = [known.find(name) for name in member_names(config) if name in known]
    if missing or not members or any(m.config is None for m in members):
        return
    if any(problems(config)) or not all(m.config.input and m.config.output for m in members):
        return
    try:
        # It may set the ensemble's policy, as at a load.
        check_members(config, {member.config.name: member.config for member in members})
    except ConfigError as error:
        yield error.problem


def _look_into_sources(report: Report) -> None:
    files = {path: one for one in report.models.values() for path in one.files}
    for path, found in look_into(list(files)).items():
        one = files[path]
        for finding in found:
            problem = Problem(
                finding.text, path=str(path), line=finding.line, column=finding.column
            )
            # Another Python than the server's may know more, or less.
            is_wrong = finding.kind == "problem" or (
                finding.kind == "syntax" and one.has_servers_python
            )
            (one.problems if is_wrong else one.warnings).append(problem)
