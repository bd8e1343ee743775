"""Finds errors of a configuration, of the files that it names, and of its model's own routes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zmqtriton.config import (
    MAX_STREAMS,
    PYTHON,
    PYTHON_FILE,
    BackendPlace,
    ConfigError,
    ModelHost,
    Problem,
    chat_template,
    config_problems,
    find_runtime,
    group_problems,
    load_timeout_s,
    own_parameter_problems,
    path_problems,
    read_client_files,
    state_problems,
    tensor_problems,
    unreadable_file_problems,
)
from zmqtriton.findings import Severity
from zmqtriton.repository import agent_problems
from zmqtriton_floor.errors import ZmqTritonError
from zmqtriton_standard.tools.checking.findings import to_problem, to_warning

_AUTO_COMPLETE_NAME = b"auto_complete_config"
#: Larger files are not code that somebody has written.
_MAX_SOURCE_BYTES = 4 << 20


@dataclass(frozen=True)
class CheckOptions:
    """The options of a server that matter here."""

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
            read_client_files(config, directory, chat_template(lambda option: True))
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
