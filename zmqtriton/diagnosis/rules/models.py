"""Finds everything that is wrong with one model's directory, without loading anything.

A load stops at the first problem; here each one is found, with its line, as far as the text can be
parsed. Only a load shows how a model completes its own configuration, what its environment lacks,
and whether its code works. Of the Python environment that a model asks for, names and the content
of archives are checked: nothing runs and nothing is built.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from zmqtriton import addons
from zmqtriton.config.backends import (
    PYTHON,
    PYTHON_FILE,
    BackendPlace,
    complete_backend,
    find_model_file,
    find_runtime,
    frameworks,
)
from zmqtriton.config.errors import ConfigError, FieldPath, Problem
from zmqtriton.config.files import (
    client_files,
    path_problems,
    read_client_files,
    unreadable_file_problems,
)
from zmqtriton.config.instances import apply_group_defaults, group_problems
from zmqtriton.config.known_parameters import misspelt_parameter_problems, own_parameter_problems
from zmqtriton.config.model_config import ModelHost, apply_defaults, source_of
from zmqtriton.config.parameters import INSTANCES, MAX_STREAMS, load_timeout_s
from zmqtriton.config.pbtxt import parse_text, read_text
from zmqtriton.config.positions import PositionIndex, locate, unknown_name_problems
from zmqtriton.config.states import state_problems
from zmqtriton.config.validation import config_problems, tensor_problems
from zmqtriton.diagnosis.hooks import CONFIG, ENVIRONMENT, FILE, VERSION
from zmqtriton.environments.demand import (
    SERVER_ENVIRONMENT,
    EnvironmentSpec,
    ignored_stub_warnings,
    resolve_environment,
)
from zmqtriton.findings import Severity
from zmqtriton.repository.agents import agent_problems
from zmqtriton.repository.scan import (
    CONFIG_FILE,
    choose_versions,
    find_config,
    find_versions,
    misnamed_config_warnings,
)
from zmqtriton_floor.errors import ZmqTritonError

_AUTO_COMPLETE_NAME = b"auto_complete_config"
#: Bytes of a file that are searched; larger files were not written by hand.
_MAX_SOURCE_BYTES = 4 << 20


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


@dataclass(frozen=True)
class CheckOptions:
    """The options of a server that matter for a check."""

    config_name: str = ""
    auto_complete: bool = True
    host: ModelHost = field(default_factory=ModelHost)
    backend_places: Sequence[BackendPlace] = ()
    may_build: bool = False
    agent_directory: str = "/opt/tritonserver/repoagents"


def configuration_problems(config: Any, directory: Path, rules: CheckOptions) -> Iterator[Problem]:
    yield from agent_problems(config, rules.agent_directory)
    yield from config_problems(config)
    # a model in Python may change what its configuration says, others add what it lacks
    is_changeable = rules.auto_complete and has_auto_completion(config, directory, rules)
    for problem in tensor_problems(config):
        is_final = config.backend != PYTHON or not is_changeable
        yield problem if is_final else to_warning(problem)
    yield from group_problems(config, rules.host.gpus, rules.host.min_compute_capability)
    yield from own_parameter_problems(config)
    is_decoupled = config.model_transaction_policy.decoupled or is_changeable
    if MAX_STREAMS in config.parameters and not is_decoupled:
        text = f"{MAX_STREAMS} means nothing to model {config.name}, which is not decoupled"
        yield Problem(text, ("parameters", MAX_STREAMS), severity=Severity.WARNING)
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
            read_client_files(config, directory, client_files(lambda option: True))
        except ZmqTritonError as error:
            yield to_problem(error, None)


def has_auto_completion(config: Any, directory: Path, rules: CheckOptions) -> bool:
    """True if a model of this backend is asked about its tensors."""
    if config.backend == PYTHON:
        name = config.default_model_filename or PYTHON_FILE
        files = [path for path in directory.glob(f"*/{name}") if path.is_file()]
    else:
        runtime = find_runtime(config, rules.backend_places)
        files = [] if runtime is None else [runtime.file]
    return any(_AUTO_COMPLETE_NAME in _read_start(path) for path in files)


def _read_start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MAX_SOURCE_BYTES)


#: Minimum bytes of a model file for the advice that instances should share one load.
_LARGE = 256 << 20
_PATH, _PYTHON, _BUILD = "EXECUTION_ENV_PATH", "PYTHON_EXECUTABLE", "PYTHON_REQUIREMENTS"


@dataclass
class ModelFindings(Findings):
    """The findings about one model, and what else was read of it."""

    directory: Path = field(kw_only=True)
    #: None if the text cannot be parsed.
    config: Any = None
    config_path: Path | None = None
    #: The versions that would be served, with the model file of each that has its own.
    versions: tuple[int, ...] = ()
    model_files: tuple[Path, ...] = ()
    #: True if the model runs on the server's own Python, so that its imports can be checked.
    has_server_environment: bool = True
    #: True if auto_complete_config() of the model's code may add inputs and outputs.
    has_auto_completion: bool = False


def check_model(directory: Path, rules: CheckOptions | None = None) -> ModelFindings:
    """Check the directory of one model; the directory has the model's name."""
    rules = rules or CheckOptions()
    findings = ModelFindings(directory=directory)
    try:
        _check_directory(directory, rules, findings)
    except ZmqTritonError as error:
        findings.problems.append(to_problem(error, findings.config_path))
    except OSError as error:
        findings.problems.append(Problem(str(error)))
    findings.problems.sort(key=lambda problem: (problem.line, problem.column))
    return findings


def _check_directory(directory: Path, rules: CheckOptions, findings: ModelFindings) -> None:
    findings.config_path = path = find_config(directory, rules.config_name)
    problems = findings.problems
    if path is None and os.path.lexists(directory / CONFIG_FILE):
        text = f"ignore {directory / CONFIG_FILE}, which is no file that can be read"
        problems.append(warning(text))
    text = read_text(path) if path is not None else ""
    if path is None:
        problems += [warning(text) for text in misnamed_config_warnings(directory)]
    if path is None and not rules.auto_complete:
        read_text(directory / CONFIG_FILE)  # the missing file is reported
    config = _parse_leniently(text, str(path), problems)
    if config is None:
        return
    if config.name not in ("", directory.name):
        mismatch = (
            f"unexpected directory name '{directory.name}' for model '{config.name}', directory "
            "name must equal model name"
        )
        problems.append(locate(Problem(mismatch, ("name",), suggestion=directory.name), path))
        config.name = directory.name
    complete_backend(config, directory.name, directory)
    apply_defaults(config)
    apply_group_defaults(config, rules.host.gpus)
    findings.config = config
    positions = PositionIndex(text)
    for problem in configuration_problems(config, directory, rules):
        here = to_warning(problem) if problem.is_host_specific else problem
        problems.append(locate(here, path, positions))
    of_add_ons = (warnings(config) for warnings in CONFIG.all_of(addons.offers()))
    more = chain(misspelt_parameter_problems(config), *of_add_ons)
    problems += [locate(p, path, positions) for p in more]
    _check_versions(directory, rules, findings)
    completes = rules.auto_complete and has_auto_completion(config, directory, rules)
    findings.has_auto_completion = completes
    notes = (*_zero_counts(positions), *_shared_load_notes(config, directory))
    problems += [locate(p, path, positions) for p in notes]
    if config.backend:
        environment_problems, findings.has_server_environment = check_environment(
            config, directory, may_build=rules.may_build
        )
        problems += [locate(p, path, positions) for p in environment_problems]
        problems += _missing_framework_problems(config, findings, rules)


def _shared_load_notes(config: Any, directory: Path) -> Iterator[Problem]:
    """Advise to load a large file once, if each of several instances may load it."""
    count = sum(group.count for group in config.instance_group if not group.gpus)
    if config.backend != PYTHON or count < 2 or INSTANCES in config.parameters:
        return
    files = [path for path in (*directory.glob("*"), *directory.glob("*/*")) if path.is_file()]
    largest = max(files, key=lambda path: path.stat().st_size, default=None)
    if largest is not None and (size := largest.stat().st_size) >= _LARGE:
        mib, name = size >> 20, largest.relative_to(directory)
        text = (
            f"if each of its {count} instances loads {name} ({mib:,} MiB), they take "
            f"{count * mib:,} MiB; with the parameter {INSTANCES} 'forks' or 'threads' they share "
            "one load"
        )
        yield Problem(text, ("instance_group",), severity=Severity.NOTE)


def _zero_counts(positions: PositionIndex) -> Iterator[Problem]:
    """Return warnings of instance groups with a count of 0, which means the default number."""
    for index in range(len(positions.value_positions(("instance_group",)))):
        for place in positions.value_positions(("instance_group", index, "count")):
            if place.value == "0":
                text = "'count: 0' means the usual number of instances, not none"
                yield replace(warning(text), field=("instance_group", index, "count"))


def _parse_leniently(text: str, path: str, problems: list[Problem]) -> Any:
    """Parse the configuration without unknown names; None if it has other errors as well."""
    try:
        return parse_text(text, path)
    except ConfigError as error:
        unknown = list(unknown_name_problems(PositionIndex(text), path))
        first = error.problem
        if not any((first.line, first.column) == (u.line, u.column) for u in unknown):
            unknown.append(first)
        problems += unknown
    try:
        return parse_text(text, path, may_have_more=True)
    except ConfigError:
        return None


def _missing_framework_problems(
    config: Any, findings: ModelFindings, rules: CheckOptions
) -> Iterator[Problem]:
    """Return a warning if a backend of ours needs a module that this Python does not have."""
    if not _has_own_backend(config, rules) or not findings.has_server_environment:
        return
    module, packages = frameworks().get(config.backend, ("", ""))
    if module and find_spec(module) is None:
        yield warning(
            f"backend '{config.backend}' needs the module '{module}', which {sys.executable} "
            f"lacks; install it with: {sys.executable} -m pip install {packages}"
        )


def _has_own_backend(config: Any, rules: CheckOptions) -> bool:
    """Return whether the model is run by a backend that comes with the server."""
    runtime = find_runtime(config, rules.backend_places)
    return runtime is not None and addons.is_own(runtime.package)


def _check_versions(directory: Path, rules: CheckOptions, findings: ModelFindings) -> None:
    config, path = findings.config, findings.config_path
    if source_of(path):
        return  # not all of its files are here
    texts: list[str] = []
    versions = find_versions(directory, directory.parent, texts)
    try:
        choice = choose_versions(config, versions)
    except ConfigError as error:
        findings.problems.append(to_problem(error, path))
        return
    finally:
        findings.problems += [warning(text) for text in (*texts, *ignored_stub_warnings(directory))]
    findings.versions = choice.versions
    findings.problems += [warning(text) for text in choice.warnings]
    if config.HasField("ensemble_scheduling") or not config.backend:
        return
    files = []
    for version in choice.versions:
        try:
            file = find_model_file(config, directory, version, rules.backend_places).file
        except ZmqTritonError as error:
            problem = to_problem(error, path)
            if problem not in findings.problems:
                findings.problems.append(problem)
        else:
            # For a backend that is written in Python, the file is not the model's.
            if config.backend == PYTHON:
                files.append(file)
            elif _has_own_backend(config, rules):
                of_files = _file_problems(config, directory / str(version))
                findings.problems += [locate(problem, path) for problem in of_files]
    findings.model_files = tuple(files)


def _file_problems(config: Any, version: Path) -> Iterator[Problem]:
    for problems in VERSION.all_of(addons.offers()):
        yield from problems(config, version)
    yield from problems_of(version / (config.default_model_filename or PYTHON_FILE))


def problems_of(path: Path, *, may_call: bool = False) -> Iterator[Problem]:
    """Yield the problems that add-ons find in the Python file of a model."""
    for problems in FILE.all_of(addons.offers()):
        yield from problems(path, may_call)


def check_environment(
    config: Any, directory: Path, *, may_build: bool
) -> tuple[list[Problem], bool]:
    """Return the problems of a model's Python, and whether that is the server's own."""
    #: Path of the parameter that decides about the environment, for the place of an error.
    where: FieldPath = next(
        (("parameters", n) for n in (_PATH, _PYTHON, _BUILD) if n in config.parameters), ()
    )
    try:
        demand = resolve_environment(config, directory.absolute(), may_build=may_build)
        if isinstance(demand, EnvironmentSpec):
            of_add_ons = (find(demand, where) for find in ENVIRONMENT.all_of(addons.offers()))
            return [*chain.from_iterable(of_add_ons)], False
        return [], demand == SERVER_ENVIRONMENT
    except (ZmqTritonError, OSError) as error:
        text = error.text if isinstance(error, ZmqTritonError) else str(error)
        return [Problem(text, where)], False
