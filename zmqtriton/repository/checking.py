"""All that is wrong with model directories, as data, without loading anything.

For whoever wants to know before a server does. A load stops at the first problem; here each is
found, with its line, as far as the text can be understood. Only a load knows what a model makes of
its own configuration, what its environment lacks, and whether its code works.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zmqtriton.config.backends import PYTHON, PYTHON_FILE, complete_backend, find_model_file
from zmqtriton.config.defaults import apply_defaults
from zmqtriton.config.ensembles import member_names
from zmqtriton.config.errors import ConfigError, Problem, closest
from zmqtriton.config.files import path_problems, read_labels
from zmqtriton.config.instances import apply_group_defaults, group_problems
from zmqtriton.config.members import check_members
from zmqtriton.config.model_config import Host
from zmqtriton.config.names import unknown_names
from zmqtriton.config.pbtxt import parse_text, read_text
from zmqtriton.config.positions import Positions, locate
from zmqtriton.config.states import state_problems
from zmqtriton.config.validation import problems, tensor_problems
from zmqtriton.repository.agents import agent_problems
from zmqtriton.repository.scan import choose_versions, find_config, scan_model, subdirectories
from zmqtriton_floor.errors import ZmqTritonError


@dataclass(frozen=True)
class Rules:
    """What a server would be told on its command line."""

    config_name: str = ""
    auto_complete: bool = True
    host: Host = field(default_factory=Host)
    backends: Sequence[Path] = ()
    agents: str = "/opt/tritonserver/repoagents"


@dataclass
class Findings:
    """Of one model: what keeps it from being served, and what should be known anyway."""

    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    #: None where the text cannot be understood.
    config: Any = None


def check_repository(repository: Path, rules: Rules | None = None) -> dict[str, Findings]:
    """All models of a repository by name, ensembles with what they call."""
    rules = rules or Rules()
    names = [path.name for path in subdirectories(repository)]
    found = {name: check_model(repository / name, rules) for name in names}
    for name in names:
        one = found[name]
        if one.config is not None and one.config.HasField("ensemble_scheduling"):
            path = find_config(repository / name, rules.config_name)
            one.problems += _placed(_member_problems(one.config, found), path)
    return found


def check_model(directory: Path, rules: Rules | None = None) -> Findings:
    """One model directory; its name is the model's."""
    rules = rules or Rules()
    findings = Findings()
    path = find_config(directory, rules.config_name)
    wrong = findings.problems
    try:
        text = read_text(path) if path is not None else ""
        config = _parsed(text, str(path), wrong)
        if config is None:
            return findings
        if config.name not in ("", directory.name):
            wrong += _placed(_other_name(config.name, directory.name), path)
            config.name = directory.name
        complete_backend(config, directory.name, directory)
    except ZmqTritonError as error:
        wrong.append(_problem(error, path))
        return findings
    apply_defaults(config)
    apply_group_defaults(config, rules.host.gpus)
    findings.config = config
    positions = Positions(text)
    for problem in _config_problems(config, directory, rules):
        wrong.append(locate(problem, path, positions))
    _look_at_versions(config, directory, path, rules, findings)
    wrong.sort(key=lambda problem: (problem.line, problem.column))
    return findings


def _parsed(text: str, path: str, wrong: list[Problem]) -> Any:
    """The configuration, without the names that nobody knows; None if that is not all."""
    try:
        return parse_text(text, path)
    except ConfigError as error:
        unknown = list(unknown_names(Positions(text), path))
        first = error.problem
        if not any((first.line, first.column) == (u.line, u.column) for u in unknown):
            unknown.append(first)
        wrong += unknown
    try:
        return parse_text(text, path, may_have_more=True)
    except ConfigError:
        return None


def _other_name(name: str, directory: str) -> Iterator[Problem]:
    yield Problem(
        f"unexpected directory name '{directory}' for model '{name}', directory name must equal "
        "model name",
        ("name",),
        directory,
    )


def _config_problems(config: Any, directory: Path, rules: Rules) -> Iterator[Problem]:
    yield from agent_problems(config, rules.agents)
    yield from problems(config)
    if not (rules.auto_complete and _completes(config, directory)):
        yield from tensor_problems(config)
    yield from group_problems(config, rules.host.gpus, rules.host.min_compute_capability)
    outside = list(path_problems(config, directory))
    yield from outside
    if not outside:
        yield from state_problems(config, directory)
        try:
            read_labels(config, directory)
        except ZmqTritonError as error:
            yield _problem(error, None)


def _completes(config: Any, directory: Path) -> bool:
    """Whether a model of it says more about its tensors when it is asked."""
    if config.backend != PYTHON:
        return False
    name = config.default_model_filename or PYTHON_FILE
    files = [path for path in directory.glob(f"*/{name}") if path.is_file()]
    return any("auto_complete_config" in path.read_text("utf-8", "replace") for path in files)


def _look_at_versions(
    config: Any, directory: Path, path: Path | None, rules: Rules, findings: Findings
) -> None:
    try:
        scanned = scan_model(directory, directory.parent, rules.config_name)
        choice = choose_versions(config, scanned.versions)
    except ZmqTritonError as error:
        findings.problems.append(_problem(error, path))
        return
    findings.warnings += [*scanned.warnings, *choice.warnings]
    if config.HasField("ensemble_scheduling") or not config.backend:
        return
    for version in choice.versions:
        try:
            find_model_file(config, directory, version, rules.backends)
        except ZmqTritonError as error:
            problem = _problem(error, path)
            if problem not in findings.problems:
                findings.problems.append(problem)


def _member_problems(config: Any, found: Mapping[str, Findings]) -> Iterator[Problem]:
    """Models that are not there; if all are, and are right, whether they fit."""
    missing = False
    for index, step in enumerate(config.ensemble_scheduling.step):
        name = step.model_name
        if name and name not in found:
            missing = True
            yield Problem(
                f"ensemble '{config.name}' depends on '{name}' which is not in the repository",
                ("ensemble_scheduling", "step", index, "model_name"),
                closest(name, found),
            )
    members = [found[name] for name in member_names(config) if name in found]
    if missing or not members or any(m.problems or m.config is None for m in members):
        return
    if any(problems(config)) or not all(m.config.input and m.config.output for m in members):
        return
    try:
        # It may set the ensemble's policy, as at a load.
        check_members(config, {member.config.name: member.config for member in members})
    except ConfigError as error:
        yield error.problem


def _placed(found: Iterator[Problem], path: Path | None) -> list[Problem]:
    return [locate(problem, path) for problem in found]


def _problem(error: ZmqTritonError, path: Path | None) -> Problem:
    if isinstance(error, ConfigError):
        return locate(error.problem, path)
    return Problem(error.text, number=error.number)
