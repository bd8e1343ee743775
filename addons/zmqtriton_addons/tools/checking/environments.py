"""Checks the Python that a model asks for: names, and what an archive holds.

Runs no interpreter and builds nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from zmqtriton.config import FieldPath, Problem
from zmqtriton.environments import (
    ARCHIVE,
    INTERPRETER,
    REQUIREMENTS,
    SERVER_ENVIRONMENT,
    EnvironmentSpec,
    resolve_environment,
)
from zmqtriton_addons.environments.interpreters import candidate_paths, find_uv, not_found_text
from zmqtriton_addons.environments.unpack import check_archive
from zmqtriton_addons.tools.checking.findings import Findings, warning
from zmqtriton_floor.errors import ZmqTritonError

_PATH, _PYTHON, _BUILD = "EXECUTION_ENV_PATH", "PYTHON_EXECUTABLE", "PYTHON_REQUIREMENTS"
_MAX_BYTES = 1 << 20
_SPECIFIER = r"(?:===|==|~=|!=|<=|>=|<|>)\s*[^\s,;()]+"
_SPECIFIERS = rf"{_SPECIFIER}(?:\s*,\s*{_SPECIFIER})*\s*,?"
_REQUIREMENT = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\s*(?:\[[A-Za-z0-9._,\s-]*\])?\s*"
    rf"(?:{_SPECIFIERS}|\(\s*{_SPECIFIERS}\s*\)|@\s*\S+)?\s*(?:;.*)?(?:\s--\S.*)?"
)
#: Options, addresses and paths, which only the installer can judge.
_UNCHECKED_REQUIREMENT = re.compile(r"-|\.|/|[a-z+]+:|.*\.(?:whl|zip|tar\.gz)\b|.*\$\{")


@dataclass
class EnvironmentFindings(Findings):
    is_server_environment: bool = False


def check_environment(config: Any, directory: Path, *, may_build: bool) -> EnvironmentFindings:
    findings = EnvironmentFindings()
    where = _deciding_parameter(config)
    try:
        demand = resolve_environment(config, directory.absolute(), may_build=may_build)
        findings.is_server_environment = demand == SERVER_ENVIRONMENT
        if isinstance(demand, EnvironmentSpec):
            findings.problems += _spec_problems(demand, where)
    except (ZmqTritonError, OSError) as error:
        text = error.text if isinstance(error, ZmqTritonError) else str(error)
        findings.problems.append(Problem(text, where))
    return findings


def _deciding_parameter(config: Any) -> FieldPath:
    """Return the parameter that decides."""
    return next((("parameters", n) for n in (_PATH, _PYTHON, _BUILD) if n in config.parameters), ())


def _spec_problems(demand: EnvironmentSpec, where: FieldPath) -> Iterator[Problem]:
    if demand.kind == ARCHIVE:
        check_archive(demand.path)
    elif demand.kind == REQUIREMENTS:
        yield from requirement_problems(Path(demand.path))
        if find_uv() is None:
            yield warning(
                f"an environment for {demand.path} cannot be built here without uv; install it "
                f"with: {sys.executable} -m pip install uv"
            )
    is_named = demand.kind in (INTERPRETER, REQUIREMENTS) and "/" not in demand.python
    if is_named and not candidate_paths(demand.python):
        yield Problem(not_found_text(demand.python), where)


def requirement_problems(path: Path) -> Iterator[Problem]:
    """Return warnings of the lines that no installer understands."""
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
        yield replace(warning(problem), path=str(path), line=number, column=1)


def _toml_problems(path: Path, text: str) -> Iterator[Problem]:
    # only now, since most models have no such file
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        place = re.search(r"at line (\d+), column (\d+)", str(error))
        line, column = map(int, place.groups()) if place else (0, 0)
        yield replace(warning(f"{error}"), path=str(path), line=line, column=column)
