"""Findings about the Pythons of models, and the cache of their environments.

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
from functools import partial
from pathlib import Path
from typing import Any

from zmqtriton.sdk.models import (
    Chapter,
    Environment,
    EnvironmentSpec,
    FileSystem,
    Finding,
    Problem,
    Severity,
    Target,
    users,
)
from zmqtriton.sdk.wire import ZmqTritonError
from zmqtriton_standard.environments.ahead import ModelEnvironment, read_environments
from zmqtriton_standard.environments.interpreters import candidate_paths, find_uv, not_found_text
from zmqtriton_standard.environments.unpack import check_archive

_GIB = 1 << 30
_OLDEST = (3, 8)
_PROGRAM_VERSION = re.compile(r"python(\d+)\.(\d+)")
_MAX_BYTES = 1 << 20
_SPECIFIER = r"(?:===|==|~=|!=|<=|>=|<|>)\s*[^\s,;()]+"
_SPECIFIERS = rf"{_SPECIFIER}(?:\s*,\s*{_SPECIFIER})*\s*,?"
_REQUIREMENT = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\s*(?:\[[A-Za-z0-9._,\s-]*\])?\s*"
    rf"(?:{_SPECIFIERS}|\(\s*{_SPECIFIERS}\s*\)|@\s*\S+)?\s*(?:;.*)?(?:\s--\S.*)?"
)
#: Options, addresses and paths, which only the installer can judge.
_UNCHECKED_REQUIREMENT = re.compile(r"-|\.|/|[a-z+]+:|.*\.(?:whl|zip|tar\.gz)\b|.*\$\{")

#: Makes a problem that ends no load.
_warning = partial(Problem, severity=Severity.WARNING)


def problems(demand: EnvironmentSpec, where: tuple[str | int, ...]) -> Iterator[Problem]:
    """Yield the problems of a Python that is not run yet; raises the errors of a load."""
    if demand.kind == "archive":
        check_archive(demand.path)
    elif demand.kind == "requirements":
        yield from requirement_problems(Path(demand.path))
        if find_uv() is None:
            yield _warning(
                f"an environment for {demand.path} cannot be built here without uv; install it "
                f"with: {sys.executable} -m pip install uv"
            )
    is_named = demand.kind in ("interpreter", "requirements") and "/" not in demand.python
    if is_named and not candidate_paths(demand.python):
        yield Problem(not_found_text(demand.python), where)


def requirement_problems(path: Path) -> Iterator[Problem]:
    """Return warnings about lines of requirements that no installer understands."""
    with path.open("rb") as file:
        text = file.read(_MAX_BYTES).decode("utf-8", "replace")
    if path.suffix == ".toml":
        yield from _toml_problems(path, text)
        return
    continues = False
    for number, line in enumerate(text.splitlines(), 1):
        continued, continues = continues, line.endswith("\\")
        words = re.sub(r"(^|\s)#.*$", "", line.rstrip("\\")).strip()
        if (
            not words
            or continued
            or _UNCHECKED_REQUIREMENT.match(words)
            or _REQUIREMENT.fullmatch(words)
        ):
            continue
        problem = f"'{words[:100]}' is no requirement that can be installed"
        yield replace(_warning(problem), path=str(path), line=number, column=1)


def _toml_problems(path: Path, text: str) -> Iterator[Problem]:
    # only now, since most models have no such file
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        tomllib.loads(text)
    except (ValueError, RecursionError):
        place = re.search(r"at line (\d+), column (\d+)", str(Finding.error))
        line, column = map(int, place.groups()) if place else (0, 0)
        yield replace(_warning(f"{Finding.error}"), path=str(path), line=line, column=column)


def chapters(target: Target) -> Iterator[Chapter]:
    """Yield the doctor's chapters."""
    places, options = target.repositories, target.options
    yield Chapter("the environment cache", judge_cache(places, options), reads_files=True)
    yield Chapter("the Pythons of the models", judge_pythons(places, options), reads_files=True)


def judge_pythons(repositories: Iterable[str], options: Mapping[str, Any]) -> Iterator[Finding]:
    environments = []
    for place, (model, environment, has_config) in _read(repositories, options):
        if not has_config:
            finding = Finding.error(
                f"model {model} cannot be loaded: {str(environment).splitlines()[0]}",
                "This shows all that is wrong with it.",
                f"zmqtriton check {shlex.quote(str(place / model))}",
            )
            yield replace(finding, model=model)
            continue
        environments.append((model, environment))
        problem = _problem_of(environment)
        if problem:
            finding = Finding.error(
                f"model {model} has no usable Python: {problem}",
                "Correct the model's parameters, or install what they name.",
                f"zmqtriton-ctl env prepare {model}",
            )
            yield replace(finding, model=model)
    building = [model for model, environment in environments if _is_built(environment)]
    if building and find_uv() is None:
        yield Finding.error(
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
                if isinstance(each.result, EnvironmentSpec | ZmqTritonError):
                    yield Path(path), each


def _is_built(environment: Any) -> bool:
    return isinstance(environment, EnvironmentSpec) and environment.kind == "requirements"


def _problem_of(spec: Any) -> str:
    if isinstance(spec, ZmqTritonError):
        return spec.text
    if spec.kind == "directory":
        return _age_problem(Environment.interpreter_in(spec.path))
    if spec.kind not in ("interpreter", "requirements"):
        return ""
    candidates = [spec.python] if "/" in spec.python else candidate_paths(spec.python)
    return _age_problem(candidates[0]) if candidates else not_found_text(spec.python)


def _age_problem(python: str) -> str:
    version = guess_version(python)
    if version and version < _OLDEST:
        return f"{python} is Python {version[0]}.{version[1]}; models need 3.8 or newer"
    return ""


def guess_version(python: str) -> tuple[int, int] | None:
    """Return an interpreter's version by names and files alone; None if they don't show it."""
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
    place = FileSystem.of(path)
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
        yield Finding.warning(
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
    return Finding.error if is_needed else Finding.note
