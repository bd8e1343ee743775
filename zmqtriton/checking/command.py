"""`zmqtriton check DIRECTORY ...`: finds errors in models before a server has to load them.

Takes the server's options, so that a whole command line can be put after the word `check`; prints
lines as compilers do, or JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from zmqtriton.checking.models import CheckOptions
from zmqtriton.checking.repositories import Report, check_repositories
from zmqtriton.config.backends import BUILTIN_BACKENDS
from zmqtriton.config.errors import Problem
from zmqtriton.config.model_config import Host
from zmqtriton.options import HelpRequested, OptionError, Options, parse
from zmqtriton.storage.places import is_remote
from zmqtriton.supervisor.machine.gpus import visible_gpus
from zmqtriton.supervisor.machine.python_settings import check as check_settings
from zmqtriton_floor.errors import ZmqTritonError

EXIT_CLEAN, EXIT_PROBLEMS, EXIT_USAGE = 0, 1, 2
_JSON = "--json"
_HELP = """\
Usage: zmqtriton check directory ... [--json] [options of the server]

Reports every error in model repositories or single models without executing any of their code.
The directory is a repository or a model. All options of the server are accepted, so a complete
command line can follow the word `check`. These have an effect:

  --model-repository, --model-config-name, --disable-auto-complete-config, --backend-directory,
  --backend-config, --repoagent-directory, --min-supported-compute-capability, --load-model,
  --build-environments

The exit status is 0 without errors, 1 with errors, and 2 for wrong usage. Warnings do not count:
they are likely mistakes, and things that only this machine lacks.
"""


class _ReportLine(NamedTuple):
    is_error: bool
    model: str
    #: the directory, if the problem is not in a file
    directory: str
    problem: Problem


def run_check(words: list[str]) -> int:
    """Run the command and return the exit status."""
    if any(word in ("-h", "--help") for word in words):
        sys.stdout.write(_HELP)
        return EXIT_CLEAN
    try:
        options = parse([word for word in words if word != _JSON], takes_directories=True)
    except (HelpRequested, OptionError) as refusal:
        sys.stderr.write(f"{refusal}\n{'' if words else _HELP}")
        return EXIT_USAGE
    if remote := [place for place in options.model_repository if is_remote(place)]:
        sys.stderr.write(f"{remote[0]} is in an object store, and only directories are checked\n")
        return EXIT_USAGE
    report = check_all(options)
    lines = list(_report_lines(report))
    if _JSON in words:
        sys.stdout.write(json.dumps(_json_document(report, lines), indent=2) + "\n")
    else:
        sys.stdout.write("".join(map(_format_line, lines)) + _summary_line(report, lines))
    return EXIT_PROBLEMS if any(line.is_error for line in lines) else EXIT_CLEAN


def check_all(options: Options) -> Report:
    """Return everything that a server with these options would find, and more."""
    lowest = options.min_supported_compute_capability
    rules = CheckOptions(
        config_name=options.model_config_name,
        auto_complete=not options.strict_model_config,
        host=Host(visible_gpus(lowest), lowest),
        backend_directories=(Path(options.backend_directory), BUILTIN_BACKENDS),
        agent_directory=options.repoagent_directory,
        may_build=options.build_environments,
    )
    report = check_repositories(
        [Path(path) for path in options.model_repository], rules, options.load_model
    )
    try:
        check_settings(options.backend_settings("python"))
    except ZmqTritonError as error:
        report.problems.append(Problem(error.text))
    return report


def _report_lines(report: Report) -> Iterator[_ReportLine]:
    for problem in report.problems:
        yield _ReportLine(True, "", "", problem)
    for problem in report.warnings:
        yield _ReportLine(False, "", "", problem)
    for name, one in report.models.items():
        for problem in one.problems:
            yield _ReportLine(True, name, str(one.directory), problem)
        for problem in one.warnings:
            yield _ReportLine(False, name, str(one.directory), problem)


def _relative_path(line: _ReportLine) -> str:
    """Return the path relative to the working directory, if that is shorter."""
    path = line.problem.path or line.directory
    if not path:
        return ""
    short = os.path.relpath(path)
    return path if short.startswith("..") else short


def _format_line(line: _ReportLine) -> str:
    problem = line.problem
    numbers = [str(number) for number in (problem.line, problem.column) if number]
    where = ":".join([_relative_path(line), *numbers])
    kind = "error" if line.is_error else "warning"
    reason = " ".join((problem.detail or problem.text).splitlines())
    hint = f" Did you mean '{problem.suggestion}'?" if problem.suggestion else ""
    stop = "." if hint and not reason.endswith((".", "?")) else ""
    return f"{where}: {kind}: {reason}{stop}{hint}\n".removeprefix(": ")


def _summary_line(report: Report, lines: list[_ReportLine]) -> str:
    wrong = sum(line.is_error for line in lines)
    counts = ((len(report.models), "model"), (wrong, "problem"), (len(lines) - wrong, "warning"))
    return ", ".join(f"{n} {word}{'' if n == 1 else 's'}" for n, word in counts) + "\n"


def _json_document(report: Report, lines: list[_ReportLine]) -> dict[str, Any]:
    return {
        "models": list(report.models),
        "findings": [
            {
                "severity": "error" if line.is_error else "warning",
                "model": line.model,
                "path": line.problem.path or line.directory,
                "line": line.problem.line,
                "column": line.problem.column,
                "text": line.problem.text,
                "detail": line.problem.detail,
                "suggestion": line.problem.suggestion,
            }
            for line in lines
        ],
    }
