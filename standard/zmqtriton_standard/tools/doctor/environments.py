"""The Pythons of models, the cache of their environments, and the variables that they get.

Runs no interpreter of a model: the doctor may be root, and the model's directory another user's.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from zmqtriton.sdk.models import Finding, demand, error, note, users, warning
from zmqtriton.sdk.wire import ZmqTritonError
from zmqtriton_standard.environments.ahead import ModelEnvironment, read_environments
from zmqtriton_standard.environments.interpreters import candidate_paths, find_uv, not_found_text
from zmqtriton_standard.tools.doctor.files import read_place

_GIB = 1 << 30
_OLDEST = (3, 8)
_PROGRAM_VERSION = re.compile(r"python(\d+)\.(\d+)")


def judge_pythons(repositories: Iterable[str], options: Mapping[str, Any]) -> Iterator[Finding]:
    environments = []
    for place, (model, environment, has_config) in _read(repositories, options):
        if not has_config:
            finding = error(
                f"model {model} cannot be loaded: {str(environment).splitlines()[0]}",
                "This shows all that is wrong with it.",
                f"zmqtriton check {shlex.quote(str(place / model))}",
            )
            yield replace(finding, model=model)
            continue
        environments.append((model, environment))
        problem = _problem_of(environment)
        if problem:
            finding = error(
                f"model {model} has no usable Python: {problem}",
                "Correct the model's parameters, or install what they name.",
                f"zmqtriton-ctl env prepare {model}",
            )
            yield replace(finding, model=model)
    building = [model for model, environment in environments if _is_built(environment)]
    if building and find_uv() is None:
        yield error(
            f"uv is missing, which builds the environments of {', '.join(building)}",
            "Install it beside the server.",
            f"{sys.executable} -m pip install uv",
        )


def _read(
    repositories: Iterable[str], options: Mapping[str, Any]
) -> Iterator[tuple[Path, ModelEnvironment]]:
    """Yield the models that ask for an environment, or whose configuration has an error."""
    may_build = bool(options.get("build-environments"))
    for path in repositories:
        with suppress(ZmqTritonError, OSError):  # the repository itself is judged elsewhere
            for each in read_environments(Path(path), may_build=may_build):
                if isinstance(each.result, demand.EnvironmentSpec | ZmqTritonError):
                    yield Path(path), each


def _is_built(environment: Any) -> bool:
    return (
        isinstance(environment, demand.EnvironmentSpec) and environment.kind == demand.REQUIREMENTS
    )


def _problem_of(spec: Any) -> str:
    if isinstance(spec, ZmqTritonError):
        return spec.text
    if spec.kind == demand.DIRECTORY:
        return _age_problem(demand.interpreter_path(spec.path))
    if spec.kind not in (demand.INTERPRETER, demand.REQUIREMENTS):
        return ""
    candidates = [spec.python] if "/" in spec.python else candidate_paths(spec.python)
    return _age_problem(candidates[0]) if candidates else not_found_text(spec.python)


def _age_problem(python: str) -> str:
    version = guess_version(python)
    if version and version < _OLDEST:
        return f"{python} is Python {version[0]}.{version[1]}; models need 3.8 or newer"
    return ""


def guess_version(python: str) -> tuple[int, int] | None:
    """Return the version of an interpreter by names and files alone; None if they do not tell."""
    folder = Path(python).parent.parent
    names = [python, os.path.realpath(python), *map(str, folder.glob("lib/python3.*"))]
    for name in names:
        match = _PROGRAM_VERSION.search(os.path.basename(name))
        if match:
            return int(match[1]), int(match[2])
    return None


def judge_cache(repositories: Iterable[str], options: Mapping[str, Any]) -> Iterator[Finding]:
    path = options.get("environment-directory") or users.default_root(
        is_shared=bool(options.get("stub-user"))
    )
    place = read_place(path)
    advice = "Name another directory with --environment-directory."
    if not place.is_writable:
        yield _judge_by_need(repositories, options)(
            f"environments of models cannot be kept in {path}: this user may not write there",
            advice,
            f"ls -ld {place.folder}",
        )
    elif not place.can_execute:
        yield _judge_by_need(repositories, options)(
            f"environments of models cannot run from {path}: it is mounted noexec",
            advice,
            f"findmnt -T {place.folder}",
        )
    elif place.free_bytes < _GIB:
        yield warning(
            f"the disk of {path} has {place.free_bytes >> 20} MiB left; an environment "
            "of a model takes up to several GiB",
            f"Remove those that are no longer used, or free the disk. {advice}",
            "zmqtriton-ctl env list",
        )


def _judge_by_need(
    repositories: Iterable[str], options: Mapping[str, Any]
) -> Callable[..., Finding]:
    """Return `error` if a model's environment must be built, else `note`."""
    is_needed = any(_is_built(each.result) for _, each in _read(repositories, options))
    return error if is_needed else note


def judge_variables(options: Mapping[str, Any]) -> Iterator[Finding]:
    """Say which variables models get; nothing where the options are not known."""
    names = options.get("model-env")
    if names is None:
        return
    if not names:
        yield note(
            "models get all variables of the environment but the server's own",
            "--model-env restricts them to those that it names and those that libraries need.",
            "zmqtriton --model-env=NAME ...",
        )
    elif "*" in names:
        yield note(
            "models get all variables of the environment, the server's own, too (--model-env=*)",
            "Credentials of the server may be among them. Without the option these are withheld.",
            "zmqtriton-ctl config",
        )
    else:
        yield note(
            "models get only the variables that libraries need and those that --model-env names: "
            f"{', '.join(names)}",
            "Name each other one that a model reads. Without --model-env they get all but the "
            "server's own.",
            shlex.join(["zmqtriton", *(f"--model-env={name}" for name in names), "..."]),
        )
