"""Finds everything that is wrong with repositories: their models, and how these fit together.

A directory that is itself a model is taken as one; models that it calls are then looked for next to
it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from zmqtriton import addons
from zmqtriton.config.backends import models_in
from zmqtriton.config.ensembles import (
    check_cycle,
    check_members,
    member_names,
    member_problems,
    no_loaded_version_text,
    version_not_loaded_text,
)
from zmqtriton.config.errors import ConfigError, Problem
from zmqtriton.config.parameters import BLS_MODELS, declared_callees
from zmqtriton.config.validation import config_problems
from zmqtriton.diagnosis.facts.sources import SourceFact, check_sources
from zmqtriton.diagnosis.hooks import CONFIGS
from zmqtriton.diagnosis.rules.models import (
    CheckOptions,
    Findings,
    ModelFindings,
    check_model,
    locate_all,
    problems_of,
    warning,
)
from zmqtriton.findings import Severity
from zmqtriton.repository.scan import (
    is_model_directory,
    is_utf8_name,
    no_model_text,
    not_found_text,
    not_unique_text,
    subdirectories,
)
from zmqtriton_floor.errors import InternalError, closest_match

#: The server brings these along.
_OWN_MODULES = frozenset({"triton_python_backend_utils", "c_python_backend_utils"})
NAMING = frozenset({"import", "input", "output"})


def missing_name_warning(fact: SourceFact, model: ModelFindings, path: Path) -> str:
    """Return the error about a name in the code of a model, or ""."""
    if fact.kind == "import":
        return _module_warning(fact.text, model, path)
    return _tensor_warning(fact.kind, fact.text, model)


def _module_warning(name: str, model: ModelFindings, path: Path) -> str:
    if not model.has_server_environment or name in _OWN_MODULES or _is_beside(name, path):
        return ""
    try:
        is_known = find_spec(name) is not None
    except (ImportError, ValueError):
        is_known = name in sys.modules
    return "" if is_known else f"{sys.executable} has no module '{name}', which is imported here"


def _is_beside(name: str, path: Path) -> bool:
    """True if the model brings the module along."""
    folders = (path.parent, path.parent.parent)
    return any((each / name).is_dir() or (each / f"{name}.py").is_file() for each in folders)


def _tensor_warning(kind: str, name: str, model: ModelFindings) -> str:
    config = model.config
    names = [tensor.name for tensor in (config.input if kind == "input" else config.output)]
    if kind == "output":  # a state may be made as one
        names += [state.output_name for state in config.sequence_batching.state]
    else:
        names += [state.input_name for state in config.sequence_batching.state]
        names += [one.name for one in config.sequence_batching.control_input]
        names += [name for one in config.batch_input for name in one.target_name]
    if not names or name in names or model.has_auto_completion:
        return ""
    meant = closest_match(name, names)
    hint = f"did you mean '{meant}'?" if meant else f"it names {', '.join(names)}"
    return f"the configuration has no {kind} '{name}'; {hint}"


_NOT_UTF8 = warning("ignore the directory: its name is not UTF-8")


@dataclass
class Report(Findings):
    """The findings about each model, and those about no model."""

    models: dict[str, ModelFindings] = field(default_factory=dict)


def check_repositories(
    directories: Sequence[Path], rules: CheckOptions, names: Sequence[str] = ()
) -> Report:
    """Check repositories; `names` are the models that a server would load at its start."""
    report = Report()
    places = _model_directories(directories, report)
    models = _CheckedModels(
        {name: places[name][0] for name in places}, _neighbour_directories(directories), rules
    )
    for name, folders in places.items():
        report.models[name] = one = models.findings_of(name)
        for other in folders[1:]:
            one.problems.append(Problem(not_unique_text(name), path=str(other)))
    for name in names:
        if name not in places and name != "*":
            report.problems.append(
                Problem(not_found_text(name), suggestion=closest_match(name, places))
            )
    for one in list(report.models.values()):
        _check_references(one, models)
    _check_conflicts(report)
    _check_sources(report)
    for one in report.models.values():
        one.problems.sort(key=lambda problem: (problem.path, problem.line, problem.column))
    return report


class _CheckedModels:
    """Checks each model once; those beside a single model only when it calls them."""

    def __init__(
        self, places: dict[str, Path], beside: dict[str, Path], rules: CheckOptions
    ) -> None:
        self._directories = {**beside, **places}
        self._rules = rules
        self._findings: dict[str, ModelFindings] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._directories

    def findings_of(self, name: str) -> ModelFindings:
        if name not in self._findings:
            self._findings[name] = check_model(self._directories[name], self._rules)
        return self._findings[name]

    def suggest(self, name: str) -> str:
        return closest_match(name, self._directories)

    def members_from(self, name: str) -> dict[str, list[str]]:
        """Return the members of each ensemble, from this one on."""
        calls: dict[str, list[str]] = {}
        waiting = [name]
        for current in waiting:
            if current not in calls and current in self:
                config = self.findings_of(current).config
                calls[current] = member_names(config) if config is not None else []
                waiting += calls[current]
        return calls


def _model_directories(directories: Sequence[Path], report: Report) -> dict[str, list[Path]]:
    """Return the places of each model by its name.

    A place that is reached in two ways counts once.
    """
    places: dict[str, list[Path]] = {}
    for directory in directories:
        try:
            inside = subdirectories(directory)
        except InternalError as error:
            report.problems.append(Problem(error.text))
            continue
        report.problems += [
            replace(_NOT_UTF8, path=str(directory / name))
            for name in sorted(os.listdir(directory))
            if not is_utf8_name(name)
        ]
        folders = [directory.absolute()] if is_model_directory(directory, inside) else inside
        if not folders:
            report.problems.append(warning(no_model_text(directory)))
        for path in folders:
            others = places.setdefault(path.name, [])
            if path.resolve() not in [other.resolve() for other in others]:
                others.append(path)
    return dict(sorted(places.items()))


def _neighbour_directories(directories: Sequence[Path]) -> dict[str, Path]:
    """Return the directories beside those that are models themselves."""
    neighbours: dict[str, Path] = {}
    for directory in directories:
        try:
            if is_model_directory(directory, subdirectories(directory)):
                around = subdirectories(directory.absolute().parent)
                neighbours.update((path.name, path) for path in around)
        except InternalError:
            continue  # reported already
    return neighbours


def _check_references(one: ModelFindings, models: _CheckedModels) -> None:
    if one.config is None:
        return
    if one.config.HasField("ensemble_scheduling"):
        one.problems += locate_all(_member_problems(one, models), one.config_path)
    for name in declared_callees(one.config):
        if name not in models:
            text = f"model '{one.config.name}' asks '{name}', which is not in the repository"
            problem = replace(
                warning(text), field=("parameters", BLS_MODELS), suggestion=models.suggest(name)
            )
            one.problems += locate_all([problem], one.config_path)


def _member_problems(one: ModelFindings, models: _CheckedModels) -> Iterator[Problem]:
    """Return the problems of an ensemble's members: missing ones, and ones that do not fit."""
    config = one.config
    try:
        check_cycle(config.name, models.members_from(config.name))
    except ConfigError as error:
        yield replace(error.problem, field=("ensemble_scheduling",))
        return
    missing = list(_missing_members(config, models))
    yield from missing
    if any(problem.field[:1] != ("ensemble_scheduling",) for problem in config_problems(config)):
        return
    members = _configured_members(config, models)
    differences = list(member_problems(config, members))
    yield from differences
    if not (missing or differences or one.errors) and members.keys() >= {*member_names(config)}:
        try:
            # sets the ensemble's transaction policy, as a load does
            check_members(config, members)
        except ConfigError as error:
            yield error.problem


def _missing_members(config: Any, models: _CheckedModels) -> Iterator[Problem]:
    """Return the steps that call models or versions which no server could load."""
    for index, step in enumerate(config.ensemble_scheduling.step):
        name = step.model_name
        here = ("ensemble_scheduling", "step", index, "model_name")
        if not name:
            continue
        if name not in models:
            why = not_found_text(name)
            text = no_loaded_version_text(config.name, name, why)
            yield Problem(text, here, suggestion=models.suggest(name), detail=why)
        elif wrong := models.findings_of(name).errors:
            why = wrong[0].text
            text = no_loaded_version_text(config.name, name, why)
            yield Problem(text, here, detail=f"model '{name}' cannot be loaded: {why}")
        elif step.model_version > 0 and step.model_version not in models.findings_of(name).versions:
            text = version_not_loaded_text(config.name, name, step.model_version)
            yield Problem(text, (*here[:3], "model_version"))


def _configured_members(config: Any, models: _CheckedModels) -> dict[str, Any]:
    """Return the configurations of those members that name their tensors."""
    configs = [models.findings_of(name).config for name in member_names(config) if name in models]
    return {one.name: one for one in configs if one is not None and one.input and one.output}


def check_files(paths: Sequence[Path]) -> list[Problem]:
    """Return the problems of Python files that are models by themselves."""
    # files that the stub runs itself, and no backend of an add-on
    facts = check_sources([path for path in paths if path.is_file() and not models_in(path)[1]])
    return [
        *(Problem("there is no such file", path=str(each)) for each in paths if not each.is_file()),
        *(
            _of_source(fact, fact.text, path, is_wrong=fact.kind in ("problem", "syntax"))
            for path in facts
            for fact in facts[path]
            if fact.kind not in NAMING
        ),
        *(problem for path in paths for problem in problems_of(path, may_call=True)),
    ]


def _of_source(fact: SourceFact, text: str, path: Path, *, is_wrong: bool) -> Problem:
    severity = Severity.ERROR if is_wrong else Severity.WARNING
    return Problem(text, severity=severity, path=str(path), line=fact.line, column=fact.column)


def _check_conflicts(report: Report) -> None:
    configs = {name: one.config for name, one in report.models.items() if one.config is not None}
    for conflicts in CONFIGS.all_of(addons.offers()):
        for name, problem in conflicts(configs):
            one = report.models[name]
            one.problems += locate_all([problem], one.config_path)


def _check_sources(report: Report) -> None:
    files = {path: one for one in report.models.values() for path in one.model_files}
    for path, facts in check_sources(list(files)).items():
        one = files[path]
        for fact in facts:
            is_name = fact.kind in NAMING
            text = missing_name_warning(fact, one, path) if is_name else fact.text
            # another Python than the server's may know more, or less
            is_wrong = fact.kind == "problem" or (
                fact.kind == "syntax" and one.has_server_environment
            )
            if text:
                one.problems.append(_of_source(fact, text, path, is_wrong=is_wrong))
