"""Finds everything that is wrong with one model's directory, without loading anything.

A load stops at the first problem; here each one is found, with its line, as far as the text can be
parsed. Only a load shows how a model completes its own configuration, what its environment lacks,
and whether its code works.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from zmqtriton.config.backends import (
    BUILTIN_BACKENDS,
    PYTHON,
    PYTHON_FILE,
    REQUIRED_MODULES,
    BackendPlace,
    complete_backend,
    find_model_file,
    find_runtime,
)
from zmqtriton.config.defaults import apply_defaults
from zmqtriton.config.errors import ConfigError, Problem
from zmqtriton.config.files import path_problems, read_client_files, unreadable_file_problems
from zmqtriton.config.instances import apply_group_defaults, group_problems
from zmqtriton.config.known_parameters import misspelt_parameter_problems
from zmqtriton.config.model_config import Host
from zmqtriton.config.names import unknown_name_problems
from zmqtriton.config.own_parameters import own_parameter_problems
from zmqtriton.config.parameters import load_timeout_s
from zmqtriton.config.pbtxt import parse_text, read_text
from zmqtriton.config.positions import PositionIndex, locate
from zmqtriton.config.states import state_problems
from zmqtriton.config.validation import config_problems, tensor_problems
from zmqtriton.environments.demand import ignored_stub_warnings
from zmqtriton.repository.agents import agent_problems
from zmqtriton.repository.scan import (
    CONFIG_FILE,
    choose_versions,
    find_config,
    find_versions,
    misnamed_config_warnings,
)
from zmqtriton_addons.tools.checking.environments import check_environment
from zmqtriton_addons.tools.checking.model_files import file_problems
from zmqtriton_floor.errors import ZmqTritonError

_AUTO_COMPLETE_NAME = b"auto_complete_config"
#: Larger files are not code that somebody has written.
_MAX_SOURCE_BYTES = 4 << 20


@dataclass(frozen=True)
class CheckOptions:
    """The options of a server that matter here."""

    config_name: str = ""
    auto_complete: bool = True
    host: Host = field(default_factory=Host)
    backend_places: Sequence[BackendPlace] = ()
    may_build: bool = False
    agent_directory: str = "/opt/tritonserver/repoagents"


@dataclass
class Findings:
    """The problems that keep one model from being served, and warnings."""

    directory: Path
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    #: None if the text cannot be parsed.
    config: Any = None
    config_path: Path | None = None
    #: The versions that would be served, with the model file of each that has its own.
    versions: tuple[int, ...] = ()
    model_files: tuple[Path, ...] = ()
    #: It runs on the server's own Python.
    has_server_environment: bool = True
    #: Its code may add inputs and outputs.
    has_auto_completion: bool = False


def check_model(directory: Path, rules: CheckOptions | None = None) -> Findings:
    """Check one model directory; its name is the model's."""
    rules = rules or CheckOptions()
    findings = Findings(directory)
    try:
        _check_directory(directory, rules, findings)
    except ZmqTritonError as error:
        findings.problems.append(to_problem(error, findings.config_path))
    except OSError as error:
        findings.problems.append(Problem(str(error)))
    findings.problems.sort(key=lambda problem: (problem.line, problem.column))
    return findings


def _check_directory(directory: Path, rules: CheckOptions, findings: Findings) -> None:
    findings.config_path = path = find_config(directory, rules.config_name)
    wrong = findings.problems
    if path is None and os.path.lexists(directory / CONFIG_FILE):
        text = f"ignore {directory / CONFIG_FILE}, which is no file that can be read"
        findings.warnings.append(Problem(text))
    text = read_text(path) if path is not None else ""
    if path is None:
        findings.warnings += [Problem(told) for told in misnamed_config_warnings(directory)]
    if path is None and not rules.auto_complete:
        read_text(directory / CONFIG_FILE)  # the missing file is reported
    config = _parse_leniently(text, str(path), wrong)
    if config is None:
        return
    if config.name not in ("", directory.name):
        wrong += locate_all(_name_mismatch_problem(config.name, directory.name), path)
        config.name = directory.name
    complete_backend(config, directory.name, directory)
    apply_defaults(config)
    apply_group_defaults(config, rules.host.gpus)
    findings.config = config
    positions = PositionIndex(text)
    for problem in _config_problems(config, directory, rules):
        where = findings.warnings if problem.is_host_specific else wrong
        where.append(locate(problem, path, positions))
    findings.warnings += [locate(p, path, positions) for p in misspelt_parameter_problems(config)]
    _check_versions(directory, rules, findings)
    completes = rules.auto_complete and _has_auto_completion(config, directory, rules)
    findings.has_auto_completion = completes
    findings.warnings += [locate(p, path, positions) for p in _zero_counts(positions)]
    if config.backend:
        environment = check_environment(config, directory, may_build=rules.may_build)
        wrong += [locate(p, path, positions) for p in environment.problems]
        findings.warnings += environment.warnings
        findings.has_server_environment = environment.is_server_environment
        findings.warnings += _missing_framework_problems(config, findings, rules)


def _zero_counts(positions: PositionIndex) -> Iterator[Problem]:
    """Return warnings of instance groups that ask for none, which means the usual number."""
    for index in range(len(positions.value_positions(("instance_group",)))):
        for place in positions.value_positions(("instance_group", index, "count")):
            if place.value == "0":
                told = "'count: 0' means the usual number of instances, not none"
                yield Problem(told, ("instance_group", index, "count"))


def _parse_leniently(text: str, path: str, wrong: list[Problem]) -> Any:
    """Parse the configuration without unknown names; None if it has other errors, too."""
    try:
        return parse_text(text, path)
    except ConfigError as error:
        unknown = list(unknown_name_problems(PositionIndex(text), path))
        first = error.problem
        if not any((first.line, first.column) == (u.line, u.column) for u in unknown):
            unknown.append(first)
        wrong += unknown
    try:
        return parse_text(text, path, may_have_more=True)
    except ConfigError:
        return None


def _name_mismatch_problem(name: str, directory: str) -> Iterator[Problem]:
    yield Problem(
        f"unexpected directory name '{directory}' for model '{name}', directory name must equal "
        "model name",
        ("name",),
        suggestion=directory,
    )


def _config_problems(config: Any, directory: Path, rules: CheckOptions) -> Iterator[Problem]:
    yield from agent_problems(config, rules.agent_directory)
    yield from config_problems(config)
    if not (rules.auto_complete and _has_auto_completion(config, directory, rules)):
        yield from tensor_problems(config)
    yield from group_problems(config, rules.host.gpus, rules.host.min_compute_capability)
    yield from own_parameter_problems(config)
    try:
        load_timeout_s(config)
    except ConfigError as error:
        yield error.problem
    outside = list(path_problems(config, directory))
    yield from outside
    if outside:
        return
    yield from state_problems(config, directory)
    unreadable = list(unreadable_file_problems(config, directory))
    yield from unreadable
    if not unreadable:
        try:
            read_client_files(config, directory, has_chats=True)
        except ZmqTritonError as error:
            yield to_problem(error, None)


def _has_auto_completion(config: Any, directory: Path, rules: CheckOptions) -> bool:
    """True if a model of this backend is asked about its tensors."""
    if config.backend == PYTHON:
        name = config.default_model_filename or PYTHON_FILE
        files = [path for path in directory.glob(f"*/{name}") if path.is_file()]
    else:
        runtime = find_runtime(config, rules.backend_places)
        files = [] if runtime is None else [runtime]
    return any(_AUTO_COMPLETE_NAME in _read_start(path) for path in files)


def _missing_framework_problems(
    config: Any, findings: Findings, rules: CheckOptions
) -> Iterator[Problem]:
    """Return a warning if a backend of ours needs a module that this Python does not have."""
    runtime = find_runtime(config, rules.backend_places)
    is_ours = runtime is not None and runtime.is_relative_to(BUILTIN_BACKENDS)
    if not is_ours or not findings.has_server_environment:
        return
    module, packages = REQUIRED_MODULES.get(config.backend, ("", ""))
    if module and find_spec(module) is None:
        yield Problem(
            f"backend '{config.backend}' needs the module '{module}', which {sys.executable} "
            f"lacks; install it with: {sys.executable} -m pip install {packages}"
        )


def _read_start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MAX_SOURCE_BYTES)


def _check_versions(directory: Path, rules: CheckOptions, findings: Findings) -> None:
    config, path = findings.config, findings.config_path
    told: list[str] = []
    versions = find_versions(directory, directory.parent, told)
    try:
        choice = choose_versions(config, versions)
    except ConfigError as error:
        findings.problems.append(to_problem(error, path))
        return
    finally:
        findings.warnings += [Problem(text) for text in (*told, *ignored_stub_warnings(directory))]
    findings.versions = choice.versions
    findings.warnings += [Problem(text) for text in choice.warnings]
    if config.HasField("ensemble_scheduling") or not config.backend:
        return
    files = []
    for version in choice.versions:
        try:
            file = find_model_file(config, directory, version, rules.backend_places)
        except ZmqTritonError as error:
            problem = to_problem(error, path)
            if problem not in findings.problems:
                findings.problems.append(problem)
        else:
            # For a backend that is written in Python, the file is not the model's.
            if config.backend == PYTHON:
                files.append(file)
            elif file.is_relative_to(BUILTIN_BACKENDS):
                found = file_problems(config, directory / str(version))
                findings.problems += [locate(problem, path) for problem in found]
    findings.model_files = tuple(files)


def locate_all(found: Iterable[Problem], path: Path | None) -> list[Problem]:
    """Return the problems with their places in the file."""
    return [locate(problem, path) for problem in found]


def to_problem(error: ZmqTritonError, path: Path | None) -> Problem:
    """Return the error that would end a load, with its place if that is known."""
    if isinstance(error, ConfigError):
        return locate(error.problem, path)
    return Problem(error.text, error_number=error.number)
